// Reads a log by the formats that it says it has, with libraries that know nothing of it: a signed note and a
// tree of golang.org/x/mod/sumdb. Takes one JSON object on standard input; says "ok" or what does not fit.
package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type asked struct {
	// The text of the verifier key, and the newest checkpoint.
	Key, Checkpoint string
	// The directory of the tiles, by the paths that they are served at.
	Tiles string
	// The leaves, and a proof (C2SP tlog-proof) for each.
	Leaves, Proofs []string
	// An earlier checkpoint of the same log.
	Earlier string
}

func main() {
	var in asked
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := check(in); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func check(in asked) error {
	verifier, err := note.NewVerifier(in.Key)
	if err != nil {
		return err
	}
	newest, err := open(in.Checkpoint, verifier)
	if err != nil {
		return err
	}
	for i, leaf := range in.Leaves {
		if err := checkProof(in.Proofs[i], leaf, verifier); err != nil {
			return fmt.Errorf("proof %d: %w", i, err)
		}
	}
	earlier, err := open(in.Earlier, verifier)
	if err != nil {
		return err
	}
	// Authenticates every tile that it reads by the root.
	hashes := tlog.TileHashReader(newest, tiles(in.Tiles))
	proof, err := tlog.ProveTree(newest.N, earlier.N, hashes)
	if err != nil {
		return err
	}
	if err := tlog.CheckTree(proof, newest.N, newest.Hash, earlier.N, earlier.Hash); err != nil {
		return err
	}
	for n := int64(0); n < newest.N; n++ {
		found, err := hashes.ReadHashes([]int64{tlog.StoredHashIndex(0, n)})
		if err != nil {
			return err
		}
		record, err := tlog.ProveRecord(newest.N, n, hashes)
		if err != nil {
			return err
		}
		if err := tlog.CheckRecord(record, newest.N, newest.Hash, n, found[0]); err != nil {
			return err
		}
	}
	return nil
}

func open(text string, verifier note.Verifier) (tlog.Tree, error) {
	opened, err := note.Open([]byte(text), note.VerifierList(verifier))
	if err != nil {
		return tlog.Tree{}, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) < 4 || lines[0] != verifier.Name() {
		return tlog.Tree{}, errors.New("not a checkpoint of this log")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return tlog.Tree{}, err
	}
	root, err := tlog.ParseHash(lines[2])
	return tlog.Tree{N: size, Hash: root}, err
}

func checkProof(text, leaf string, verifier note.Verifier) error {
	head, checkpoint, found := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	if !found || len(lines) < 2 || lines[0] != "c2sp.org/tlog-proof@v1" {
		return errors.New("not a proof")
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[1], "index "), 10, 64)
	if err != nil {
		return err
	}
	var proof tlog.RecordProof
	for _, line := range lines[2:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return err
		}
		proof = append(proof, hash)
	}
	tree, err := open(checkpoint, verifier)
	if err != nil {
		return err
	}
	return tlog.CheckRecord(proof, tree.N, tree.Hash, index, tlog.RecordHash([]byte(leaf)))
}

type tiles string

func (tiles) Height() int                     { return 8 }
func (tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func (directory tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var read [][]byte
	for _, tile := range wanted {
		// The same paths, but for the height in front.
		path := strings.TrimPrefix(tile.Path(), "tile/8/")
		text, err := os.ReadFile(filepath.Join(string(directory), strings.ReplaceAll(path, "/", "_")))
		if err != nil {
			return nil, err
		}
		data, err := base64.StdEncoding.DecodeString(string(text))
		if err != nil {
			return nil, err
		}
		read = append(read, data)
	}
	return read, nil
}
