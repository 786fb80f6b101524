// Independent parties to a log, of libraries that know nothing of it: a witness, a feeder of witnesses and a reader.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	parties := map[string]func(context.Context, []string) error{"witness": witness, "feed": feed, "read": read}
	if len(os.Args) < 2 || parties[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "peers witness LOG-VKEY NAME, peers feed ORIGIN or peers read")
		os.Exit(2)
	}
	if err := parties[os.Args[1]](context.Background(), os.Args[2:]); err != nil {
		say(map[string]string{"said": err.Error()})
		os.Exit(1)
	}
}

// say prints a line of JSON.
func say(what any) {
	if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
		panic(err)
	}
}
