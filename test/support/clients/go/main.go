// Command main makes one chat call with a client certificate, by Go's own TLS and HTTP and nothing else.
//
// It prints the status and the body. Arguments: URL, CA, certificate and key (files), and how many bytes to send in
// place of a call, if any.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

func main() {
	body := `{"model":"gpt-test","messages":[{"role":"user","content":"hi"}]}`
	if len(os.Args) > 5 {
		size, err := strconv.Atoi(os.Args[5])
		if err != nil {
			panic(err)
		}
		body = strings.Repeat("x", size)
	}
	if err := call(os.Args[1], os.Args[2], os.Args[3], os.Args[4], body); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func call(url, caFile, certFile, keyFile, body string) error {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	// Go picks among these by the CAs that the server names: one that chains to none of them is not sent.
	own, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return err
	}
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	answer, err := client.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	fmt.Printf("%d %s\n", answer.StatusCode, text)
	return nil
}
