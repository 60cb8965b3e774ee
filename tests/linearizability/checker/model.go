package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/anishathalye/porcupine"
)

const publishers = 4

// state is what a direct stream is, as its clients see it: a digest of all that is in it, and who may append.
type state struct {
	log *prefix
	// holder is the handle that was opened last: only it may append. epoch is the greatest that was seen.
	holder int
	epoch  int64
	sealed bool
	// published has the last id of each publisher.
	published [publishers]int64
	fenced    *fence
}

// prefix is the stream up to tail, and the shorter ones before it.
type prefix struct {
	tail   int64
	digest digest
	before *prefix
}

// fence says where the stream ended when a handle was no longer the holder; digest tells lists of them apart.
type fence struct {
	handle int
	tail   int64
	digest digest
	before *fence
}

// model is the sequential behaviour of a direct stream. An operation that may or may not have taken effect leads to
// both states; one that was refused, to none but the one it began in. A handle that another opening has fenced reads
// what was there until then, and no more: what it has in memory cannot know better.
func model(h *history) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []interface{} {
			return []interface{}{state{log: &prefix{tail: h.First}}}
		},
		Step: func(from, input, _ interface{}) []interface{} {
			return step(from.(state), input.(*operation))
		},
		Equal:             func(one, other interface{}) bool { return one.(state).equals(other.(state)) },
		Hash:              func(one interface{}) uint64 { return one.(state).hash() },
		DescribeOperation: func(input, _ interface{}) string { return input.(*operation).String() },
		DescribeState:     func(one interface{}) string { return one.(state).String() },
	}).ToModel()
}

func step(from state, op *operation) []interface{} {
	if op.Result == "refused" {
		return []interface{}{from}
	}
	switch op.Kind {
	case "open":
		return opened(from, op)
	case "append":
		return appended(from, op)
	case "seal":
		return sealed(from, op)
	default:
		return only(from, from.shows(op))
	}
}

func opened(from state, op *operation) []interface{} {
	to := from
	to.holder = op.Handle
	if from.holder != 0 {
		to.fenced = from.fenced.and(from.holder, from.log.tail)
	}
	if op.Result == "unknown" {
		return []interface{}{from, to}
	}
	to.epoch = op.Epoch
	return only(to, op.Epoch > from.epoch && !from.sealed)
}

func appended(from state, op *operation) []interface{} {
	isRepeated := op.Publisher != nil && op.Publishing <= from.published[*op.Publisher]
	if op.Result == "duplicate" {
		return only(from, isRepeated)
	}
	base := op.Base
	if op.Result == "unknown" {
		base = from.log.tail
		if op.Expect != nil && op.gaps {
			base = *op.Expect
		}
	}
	isNext := base == from.log.tail || (op.gaps && base > from.log.tail)
	mayAppend := from.holder == op.Handle && !from.sealed && !isRepeated && isNext && (op.Expect == nil || *op.Expect == base)
	if op.Result == "unknown" && !mayAppend {
		return []interface{}{from}
	}
	to := from
	to.log = from.log.and(base, op)
	if op.Publisher != nil {
		to.published[*op.Publisher] = op.Publishing
	}
	if op.Result == "unknown" {
		return []interface{}{to, from}
	}
	to.epoch = op.Epoch
	return only(to, mayAppend && op.Epoch >= from.epoch)
}

func sealed(from state, op *operation) []interface{} {
	to := from
	to.sealed = true
	if op.Result == "unknown" && (from.holder == op.Handle || from.sealed) {
		return []interface{}{to, from}
	}
	if op.Result == "unknown" {
		return []interface{}{from}
	}
	return only(to, from.holder == op.Handle || from.sealed)
}

func only(to state, isLegal bool) []interface{} {
	if isLegal {
		return []interface{}{to}
	}
	return nil
}

// shows tells whether a read may have seen what it has.
func (s state) shows(op *operation) bool {
	if op.Handle == 0 && !op.Stale || op.Handle != 0 && op.Handle == s.holder {
		return s.log.isSeen(op)
	}
	upTo := s.log.tail
	for one := s.fenced; one != nil && op.Handle != 0; one = one.before {
		if one.handle == op.Handle {
			upTo = one.tail
			break
		}
	}
	for one := s.log; one != nil; one = one.before {
		if one.tail <= upTo && one.isSeen(op) {
			return true
		}
	}
	return false
}

func (p *prefix) isSeen(op *operation) bool {
	isWhole := op.Kind == "tail" || op.Digest == p.digest
	return isWhole && (op.Tail == p.tail || op.gaps && op.Tail > p.tail)
}

// and returns the stream with a batch after it. Whoever reads computes the digest in the same way.
func (p *prefix) and(base int64, op *operation) *prefix {
	var bytes [24]byte
	binary.BigEndian.PutUint64(bytes[:8], uint64(p.digest))
	if !op.gaps {
		binary.BigEndian.PutUint64(bytes[8:16], uint64(base))
	}
	binary.BigEndian.PutUint64(bytes[16:], uint64(op.Batch))
	return &prefix{tail: base + op.Messages, digest: first(bytes[:]), before: p}
}

func (f *fence) and(handle int, tail int64) *fence {
	var bytes [24]byte
	if f != nil {
		binary.BigEndian.PutUint64(bytes[:8], uint64(f.digest))
	}
	binary.BigEndian.PutUint64(bytes[8:16], uint64(handle))
	binary.BigEndian.PutUint64(bytes[16:], uint64(tail))
	return &fence{handle: handle, tail: tail, digest: first(bytes[:]), before: f}
}

func first(bytes []byte) digest {
	sum := sha256.Sum256(bytes)
	return digest(binary.BigEndian.Uint64(sum[:8]))
}

func (s state) fencedDigest() digest {
	if s.fenced == nil {
		return 0
	}
	return s.fenced.digest
}

func (s state) equals(other state) bool {
	return s.log.tail == other.log.tail && s.log.digest == other.log.digest && s.holder == other.holder &&
		s.epoch == other.epoch && s.sealed == other.sealed && s.published == other.published &&
		s.fencedDigest() == other.fencedDigest()
}

func (s state) hash() uint64 {
	return uint64(s.log.digest) ^ uint64(s.fencedDigest()) ^ uint64(s.log.tail)<<32 ^ uint64(s.holder)<<16 ^ uint64(s.epoch)
}

func (s state) String() string {
	text := fmt.Sprintf("%s up to %d, held by %d, epoch %d", s.log.digest, s.log.tail, s.holder, s.epoch)
	if s.sealed {
		text += ", sealed"
	}
	return text
}

func contains(words, word string) bool {
	return strings.Contains(" "+words+" ", " "+word+" ")
}
