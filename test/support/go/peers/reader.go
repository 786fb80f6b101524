package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/transparency-dev/formats/log"
	"github.com/transparency-dev/tessera/client"
	"golang.org/x/mod/sumdb/note"
)

// reading is what a reader of a log is given.
type reading struct {
	// Where the log is served, and the PEM texts by which whoever asks is let in.
	URL, Certificate, PrivateKey, CA string
	// The key of the log.
	Key string
	// Earlier checkpoints, oldest first.
	Earlier []string
	// Leaves, and a proof (C2SP tlog-proof) for each.
	Leaves, Proofs []string
	// The end of a path, whose answer reaches the reader with another byte in its middle.
	Spoiled string
	// Whether it may read the leaves.
	Entries bool
}

// reader reads one log through the client of tessera.
type reader struct {
	reading
	verifier note.Verifier
	fetcher  *client.HTTPFetcher
	newest   log.Checkpoint
	hashes   [][]byte
}

// read reads a whole log and verifies all of it: says how many leaves it has, and which.
func read(ctx context.Context, _ []string) error {
	var in reading
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return err
	}
	r, err := newReader(ctx, in)
	if err != nil {
		return err
	}
	for _, check := range []func(context.Context) error{r.inclusion, r.consistency, r.proofs} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	leaves, err := r.entries(ctx)
	if err != nil {
		return err
	}
	say(map[string]any{"said": "ok", "size": r.newest.Size, "leaves": leaves})
	return nil
}

func newReader(ctx context.Context, in reading) (*reader, error) {
	verifier, err := note.NewVerifier(in.Key)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(in.URL)
	if err != nil {
		return nil, err
	}
	web, err := in.web()
	if err != nil {
		return nil, err
	}
	fetcher, err := client.NewHTTPFetcher(at, web)
	if err != nil {
		return nil, err
	}
	newest, _, _, err := client.FetchCheckpoint(ctx, fetcher.ReadCheckpoint, verifier, verifier.Name())
	if err != nil {
		return nil, err
	}
	hashes, err := client.FetchLeafHashes(ctx, fetcher.ReadTile, 0, newest.Size, newest.Size)
	return &reader{in, verifier, fetcher, *newest, hashes}, err
}

func (in reading) web() (*http.Client, error) {
	own, err := tls.X509KeyPair([]byte(in.Certificate), []byte(in.PrivateKey))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(in.CA)) {
		return nil, errors.New("no certificate of a CA")
	}
	config := &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: roots}
	return &http.Client{Transport: spoiling{&http.Transport{TLSClientConfig: config}, in.Spoiled}}, nil
}

// spoiling changes a byte of some answers on their way.
type spoiling struct {
	next http.RoundTripper
	path string
}

func (s spoiling) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(req)
	if err != nil || s.path == "" || !strings.HasSuffix(req.URL.Path, s.path) {
		return answer, err
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		body[len(body)/2] ^= 1
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}
