package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"

	fnote "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/witness/config"
	"github.com/transparency-dev/witness/omniwitness"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"golang.org/x/mod/sumdb/note"
)

// witness runs the witness of transparency-dev for one log, on a port of its own, until it is killed: says its
// address and the key of its cosignatures. It cosigns by Ed25519 and, in front of that, by ML-DSA-44.
func witness(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("say the key of the log and a name")
	}
	log, err := note.NewVerifier(args[0])
	if err != nil {
		return err
	}
	signers, key, err := cosigners(args[1])
	if err != nil {
		return err
	}
	store := inmemory.New()
	known := config.Log{VKey: args[0], Verifier: log, Origin: log.Name()}
	if err := store.AddLogs(ctx, []config.Log{known}); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	say(map[string]string{"url": "http://" + listener.Addr().String(), "vkey": key})
	operator := omniwitness.OperatorConfig{WitnessKeys: signers, Logs: store}
	return omniwitness.Main(ctx, operator, store, listener, http.DefaultClient)
}

// cosigners makes the keys of a witness; the text is that of the one of Ed25519.
func cosigners(name string) ([]note.Signer, string, error) {
	secret, public, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return nil, "", err
	}
	key, err := fnote.VKeyToCosignatureV1(public)
	if err != nil {
		return nil, "", err
	}
	signer, err := fnote.NewSignerForCosignatureV1(secret)
	if err != nil {
		return nil, "", err
	}
	other, _, err := fnote.GenerateMLDSAKey(name)
	if err != nil {
		return nil, "", err
	}
	later, err := fnote.NewSignerForCosignatureV1(other)
	return []note.Signer{later, signer}, key, err
}
