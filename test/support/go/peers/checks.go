package main

import (
	"context"
	"fmt"

	"github.com/transparency-dev/formats/log"
	tlogproof "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
)

var hasher = rfc6962.DefaultHasher

// inclusion proves each leaf by the tiles, and sees the proof refused for its neighbour, and with another root.
func (r *reader) inclusion(ctx context.Context) error {
	builder, err := client.NewProofBuilder(ctx, r.newest.Size, r.fetcher.ReadTile)
	if err != nil {
		return err
	}
	size, other := r.newest.Size, hasher.HashLeaf(r.newest.Hash)
	for index, hash := range r.hashes {
		at := uint64(index)
		path, err := builder.InclusionProof(ctx, at)
		if err != nil {
			return err
		}
		if err := proof.VerifyInclusion(hasher, at, size, hash, path, r.newest.Hash); err != nil {
			return fmt.Errorf("leaf %d: %w", at, err)
		}
		if proof.VerifyInclusion(hasher, (at+1)%size, size, hash, path, r.newest.Hash) == nil {
			return fmt.Errorf("the proof of leaf %d is one of its neighbour too", at)
		}
		if proof.VerifyInclusion(hasher, at, size, hash, path, other) == nil {
			return fmt.Errorf("the proof of leaf %d leads to another root too", at)
		}
	}
	return nil
}

// consistency proves that each checkpoint begins with each before it, by the tiles of the later one alone.
func (r *reader) consistency(ctx context.Context) error {
	all, err := r.checkpoints()
	if err != nil {
		return err
	}
	for i, larger := range all {
		builder, err := client.NewProofBuilder(ctx, larger.Size, r.fetcher.ReadTile)
		if err != nil {
			return err
		}
		for _, smaller := range all[:i] {
			path, err := builder.ConsistencyProof(ctx, smaller.Size, larger.Size)
			if err != nil {
				return err
			}
			if err := proof.VerifyConsistency(hasher, smaller.Size, larger.Size, path, smaller.Hash, larger.Hash); err != nil {
				return fmt.Errorf("from %d to %d: %w", smaller.Size, larger.Size, err)
			}
			other := hasher.HashLeaf(smaller.Hash)
			if proof.VerifyConsistency(hasher, smaller.Size, larger.Size, path, other, larger.Hash) == nil {
				return fmt.Errorf("a proof from %d to %d is one from another root too", smaller.Size, larger.Size)
			}
		}
	}
	return nil
}

func (r *reader) checkpoints() ([]log.Checkpoint, error) {
	var all []log.Checkpoint
	for _, text := range r.Earlier {
		one, _, _, err := log.ParseCheckpoint([]byte(text), r.verifier.Name(), r.verifier)
		if err != nil {
			return nil, err
		}
		all = append(all, *one)
	}
	return append(all, r.newest), nil
}

// proofs verifies the proofs that were handed over, each for its leaf.
func (r *reader) proofs(context.Context) error {
	for i, text := range r.Proofs {
		var given tlogproof.TLogProof
		if err := given.Unmarshal([]byte(text)); err != nil {
			return fmt.Errorf("proof %d: %w", i, err)
		}
		head, _, _, err := log.ParseCheckpoint(given.Checkpoint, r.verifier.Name(), r.verifier)
		if err != nil {
			return fmt.Errorf("proof %d: %w", i, err)
		}
		var path [][]byte
		for _, hash := range given.Hashes {
			path = append(path, hash[:])
		}
		leaf := hasher.HashLeaf([]byte(r.Leaves[i]))
		if err := proof.VerifyInclusion(hasher, given.Index, head.Size, leaf, path, head.Hash); err != nil {
			return fmt.Errorf("proof %d: %w", i, err)
		}
	}
	return nil
}

// entries has the whole log made anew of its leaves, and compared with its tiles; returns the leaves.
func (r *reader) entries(ctx context.Context) ([]string, error) {
	if !r.Entries {
		return nil, nil
	}
	if err := fsck.New(r.verifier.Name(), r.verifier, r.fetcher, hashesIn, fsck.Opts{N: 2}).Check(ctx); err != nil {
		return nil, err
	}
	var leaves []string
	for n := uint64(0); n*256 < r.newest.Size; n++ {
		bundle, err := client.GetEntryBundle(ctx, r.fetcher.ReadEntryBundle, n, r.newest.Size)
		if err != nil {
			return nil, err
		}
		for _, entry := range bundle.Entries {
			leaves = append(leaves, string(entry))
		}
	}
	return leaves, nil
}

func hashesIn(bundle []byte) ([][]byte, error) {
	var read api.EntryBundle
	if err := read.UnmarshalText(bundle); err != nil {
		return nil, err
	}
	var hashes [][]byte
	for _, entry := range read.Entries {
		hashes = append(hashes, hasher.HashLeaf(entry))
	}
	return hashes, nil
}
