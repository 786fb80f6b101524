package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/transparency-dev/formats/log"
	fnote "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/merkle/testonly"
	client "github.com/transparency-dev/witness/client/http"
	"golang.org/x/mod/sumdb/note"
)

// The leaves of the log that is fed; a fork has another one from the first on.
const leaves = 2048

// asked is one request to a witness.
type asked struct {
	ID int
	// The prefix of the witness, and the key of its cosignatures.
	URL, Witness string
	Old, Size    uint64
	// Whether the checkpoint is of another tree, and the proof.
	Fork, ForkedProof bool
	// The name of the log, where it is not its own.
	Origin string
	// Lines behind the root.
	Extension string
	// Who signs: "", the log; "both", its two keys; "stranger", none of them; "liar", both, and the second wrongly.
	By string
}

// said is what came of it: "cosigned", or the error as the client has it.
type said struct {
	ID   int    `json:"id"`
	Said string `json:"said"`
	// What the witness says that it has, where that was not the old size.
	Has uint64 `json:"has"`
	// The root that was offered, and when it was cosigned, in s.
	Root string `json:"root"`
	At   int64  `json:"at"`
}

// feed feeds witnesses a log of its own: says its two keys, then answers each line of standard input, many at once.
func feed(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("say the origin of the log")
	}
	own, err := newLog(args[0])
	if err != nil {
		return err
	}
	say(map[string][]string{"vkeys": own.keys})
	var mutex sync.Mutex
	var group sync.WaitGroup
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var in asked
		if err := json.Unmarshal(lines.Bytes(), &in); err != nil {
			return err
		}
		group.Go(func() {
			out := own.offer(ctx, in)
			mutex.Lock()
			defer mutex.Unlock()
			say(out)
		})
	}
	group.Wait()
	return lines.Err()
}

type fedLog struct {
	origin       string
	keys         []string
	signers      []note.Signer
	tree, forked *testonly.Tree
}

func newLog(origin string) (*fedLog, error) {
	own := &fedLog{origin: origin, tree: testonly.New(rfc6962.DefaultHasher), forked: testonly.New(rfc6962.DefaultHasher)}
	for range 3 {
		secret, public, err := note.GenerateKey(rand.Reader, origin)
		if err != nil {
			return nil, err
		}
		signer, err := note.NewSigner(secret)
		if err != nil {
			return nil, err
		}
		own.signers, own.keys = append(own.signers, signer), append(own.keys, public)
	}
	// Nobody is told of the third.
	own.keys = own.keys[:2]
	for row := range leaves {
		own.tree.AppendData(fmt.Appendf(nil, "row %d", row))
		own.forked.AppendData(fmt.Appendf(nil, "another row %d", row))
	}
	return own, nil
}

// offer asks a witness, by a client that is not of the log, and opens what comes by the witness's key.
func (own *fedLog) offer(ctx context.Context, in asked) said {
	out := said{ID: in.ID}
	checkpoint, root, err := own.checkpoint(in)
	if err == nil {
		out.Root = root
		out.At, out.Has, err = own.cosigned(ctx, in, checkpoint)
	}
	out.Said = "cosigned"
	if err != nil {
		out.Said = err.Error()
	}
	return out
}

func (own *fedLog) cosigned(ctx context.Context, in asked, checkpoint []byte) (int64, uint64, error) {
	at, err := url.Parse(in.URL)
	if err != nil {
		return 0, 0, err
	}
	witness := client.NewWitness(at, http.DefaultClient)
	lines, has, err := witness.Update(ctx, in.Old, checkpoint, own.proof(in))
	if err != nil {
		return 0, has, err
	}
	verifier, err := fnote.NewVerifierForCosignatureV1(in.Witness)
	if err != nil {
		return 0, 0, err
	}
	opened, err := note.Open(append(checkpoint, lines...), note.VerifierList(verifier))
	if err != nil {
		return 0, 0, err
	}
	time, err := fnote.CoSigV1Timestamp(opened.Sigs[0])
	return time.Unix(), 0, err
}

func (own *fedLog) checkpoint(in asked) ([]byte, string, error) {
	tree := own.treeOf(in.Fork)
	root := tree.HashAt(in.Size)
	text := log.Checkpoint{Origin: own.origin, Size: in.Size, Hash: root}.Marshal()
	if in.Origin != "" {
		text = log.Checkpoint{Origin: in.Origin, Size: in.Size, Hash: root}.Marshal()
	}
	by := map[string][]note.Signer{"": own.signers[:1], "stranger": own.signers[2:]}[in.By]
	if by == nil {
		by = own.signers[:2]
	}
	signed, err := note.Sign(&note.Note{Text: string(text) + in.Extension}, by...)
	if err == nil && in.By == "liar" {
		signed, err = unsign(signed)
	}
	return signed, base64.StdEncoding.EncodeToString(root), err
}

// unsign spoils the last signature of a note.
func unsign(signed []byte) ([]byte, error) {
	lines := strings.Split(strings.TrimSuffix(string(signed), "\n"), "\n")
	words := strings.Split(lines[len(lines)-1], " ")
	bytes, err := base64.StdEncoding.DecodeString(words[2])
	if err != nil {
		return nil, err
	}
	bytes[len(bytes)-1] ^= 1
	words[2] = base64.StdEncoding.EncodeToString(bytes)
	lines[len(lines)-1] = strings.Join(words, " ")
	return []byte(strings.Join(lines, "\n") + "\n"), nil
}

// proof is that of the two sizes; none where they make none.
func (own *fedLog) proof(in asked) [][]byte {
	if in.Old == 0 || in.Old >= in.Size {
		return nil
	}
	proof, err := own.treeOf(in.Fork != in.ForkedProof).ConsistencyProof(in.Old, in.Size)
	if err != nil {
		return nil
	}
	return proof
}

func (own *fedLog) treeOf(fork bool) *testonly.Tree {
	if fork {
		return own.forked
	}
	return own.tree
}
