package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// history is one line of the input: what the clients of one direct stream called, and what they were told.
type history struct {
	Name string `json:"history"`
	// First is the offset at which the stream begins.
	First int64 `json:"first"`
	// Gaps says that there may be tracking chunks between batches: offsets then grow, and no more is asked of them.
	Gaps       bool        `json:"gaps"`
	Operations []operation `json:"operations"`
}

// operation is one call. Call and Return are in a clock that all clients share. Return is null if nobody was told how
// the call ended, or was told that it may or may not have taken effect: then it may do so at any time after Call.
type operation struct {
	Client int    `json:"client"`
	Call   int64  `json:"call"`
	Return *int64 `json:"return"`
	Kind   string `json:"kind"`    // open, append, read, tail, seal
	Result string `json:"outcome"` // ok, refused, unknown, duplicate
	// Handle numbers the openings. 0 is a reader without one.
	Handle int   `json:"handle"`
	Epoch  int64 `json:"epoch"`

	// Of an append.
	Messages   int64  `json:"messages"`
	Batch      digest `json:"batch"`
	Expect     *int64 `json:"expect"`
	Publisher  *int   `json:"publisher"` // 0 up to publishers
	Publishing int64  `json:"publishing"`
	Base       int64  `json:"base"`

	// Of a read of the whole stream, and of its tail.
	Tail   int64  `json:"tail"`
	Digest digest `json:"digest"`
	// Stale says that a read promised no more than some earlier state.
	Stale bool `json:"stale"`

	gaps bool
}

// digest is 64 bits as 16 hexadecimal digits.
type digest uint64

func (d *digest) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	value, err := strconv.ParseUint(text, 16, 64)
	*d = digest(value)
	return err
}

func (d digest) String() string { return fmt.Sprintf("%016x", uint64(d))[:6] }

// operations returns what Porcupine wants. It refuses what no history can say, so that a mistake of whoever writes
// histories is none of the verdict.
func (h *history) operations() ([]porcupine.Operation, error) {
	found := make([]porcupine.Operation, 0, len(h.Operations))
	for i := range h.Operations {
		one := &h.Operations[i]
		one.gaps = h.Gaps
		if err := one.check(); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
		ends := int64(math.MaxInt64)
		if one.Return != nil {
			ends = *one.Return
		}
		found = append(found, porcupine.Operation{
			ClientId: one.Client, Input: one, Call: one.Call, Output: one, Return: ends,
		})
	}
	return found, nil
}

func (o *operation) check() error {
	results, known := map[string]string{
		"open": "ok refused unknown", "append": "ok refused unknown duplicate", "seal": "ok refused unknown",
		"read": "ok", "tail": "ok",
	}[o.Kind]
	switch {
	case !known:
		return fmt.Errorf("no kind %q", o.Kind)
	case !contains(results, o.Result):
		return fmt.Errorf("no outcome %q of %s", o.Result, o.Kind)
	case (o.Return == nil) != (o.Result == "unknown"):
		return fmt.Errorf("%s is %s, and the time of its return says otherwise", o.Kind, o.Result)
	case o.Return != nil && *o.Return < o.Call:
		return fmt.Errorf("%s returns before it is called", o.Kind)
	case o.Kind == "append" && o.Messages < 1:
		return fmt.Errorf("append of %d messages", o.Messages)
	case o.Publisher != nil && (*o.Publisher < 0 || *o.Publisher >= publishers):
		return fmt.Errorf("publisher %d, of 0 to %d", *o.Publisher, publishers-1)
	case o.Handle == 0 && o.Kind != "read":
		return fmt.Errorf("%s without a handle", o.Kind)
	}
	return nil
}

func (o *operation) String() string {
	text := o.Kind
	if o.Handle != 0 {
		text = fmt.Sprintf("%s by %d", o.Kind, o.Handle)
	}
	if o.Kind == "append" {
		text += fmt.Sprintf(" (%d of %s", o.Messages, o.Batch)
		if o.Expect != nil {
			text += fmt.Sprintf(", expect %d", *o.Expect)
		}
		if o.Publisher != nil {
			text += fmt.Sprintf(", publisher %d: %d", *o.Publisher, o.Publishing)
		}
		text += ")"
	}
	switch {
	case o.Result != "ok":
		return text + ": " + o.Result
	case o.Kind == "append":
		return fmt.Sprintf("%s: at %d", text, o.Base)
	case o.Kind == "open":
		return fmt.Sprintf("%s: epoch %d", text, o.Epoch)
	case o.Kind == "tail":
		return fmt.Sprintf("%s: %d", text, o.Tail)
	case o.Kind == "read":
		return fmt.Sprintf("%s: %s up to %d", text, o.Digest, o.Tail)
	}
	return text
}
