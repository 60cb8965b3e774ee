// Command checker tells of each history of a direct stream whether it is linearizable, by Porcupine.
//
//	checker [-timeout 10s] [-visualize DIR] <histories.jsonl
//
// Each line is a history (history.go); each line of the answer a verdict, in the same order, as soon as it is there:
//
//	{"history":"seed 7","verdict":"legal","operations":41,"seconds":0.0004}
//
// A verdict is legal, illegal, or unknown if there was none in time. With -visualize, what is not legal is drawn into
// DIR as a page to be opened in a browser, and "page" names it.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/anishathalye/porcupine"
)

type verdict struct {
	History    string  `json:"history"`
	Verdict    string  `json:"verdict"`
	Operations int     `json:"operations"`
	Seconds    float64 `json:"seconds"`
	Page       string  `json:"page,omitempty"`
}

var verdicts = map[porcupine.CheckResult]string{porcupine.Ok: "legal", porcupine.Illegal: "illegal", porcupine.Unknown: "unknown"}

func main() {
	timeout := flag.Duration("timeout", 10*time.Second, "for one history")
	pages := flag.String("visualize", "", "directory for drawings of what is not legal")
	flag.Parse()
	if err := checkAll(os.Stdin, os.Stdout, *timeout, *pages); err != nil {
		fmt.Fprintln(os.Stderr, "checker:", err)
		os.Exit(2)
	}
}

func checkAll(in io.Reader, out io.Writer, timeout time.Duration, pages string) error {
	lines, answers := bufio.NewReader(in), json.NewEncoder(out)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		} else if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		var one history
		if err := json.Unmarshal(line, &one); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		found, err := check(&one, timeout, pages)
		if err != nil {
			return fmt.Errorf("line %d, %s: %w", number, one.Name, err)
		}
		if err := answers.Encode(found); err != nil {
			return err
		}
	}
}

func check(one *history, timeout time.Duration, pages string) (verdict, error) {
	operations, err := one.operations()
	if err != nil {
		return verdict{}, err
	}
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(model(one), operations, timeout)
	found := verdict{one.Name, verdicts[result], len(operations), time.Since(began).Seconds(), ""}
	if result == porcupine.Ok || pages == "" {
		return found, nil
	}
	// Again, for the longest parts that are legal: they are not kept where nobody looks at them.
	_, info := porcupine.CheckOperationsVerbose(model(one), operations, timeout)
	found.Page = filepath.Join(pages, regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(one.Name, "-")+".html")
	return found, porcupine.VisualizePath(model(one), info, found.Page)
}
