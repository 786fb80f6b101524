// An MCP client on the official SDK of Go, with a handler for all that a server may ask or announce. It says the version
// that it agreed on and the server's capabilities, and then answers lines of JSON. Arguments: the door, the directory of
// ca.crt, agent.crt and agent.key, and the version to begin with; empty for the SDK's own choice.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type order struct {
	ID        int            `json:"id"`
	Do        string         `json:"do"`
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

// say prints a line of JSON.
func say(what map[string]any) {
	if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
		panic(err)
	}
}

// failure is a refusal as the SDK gives it to a program.
func failure(err error) map[string]any {
	said := map[string]any{"error": err.Error()}
	var refused *jsonrpc.Error
	if errors.As(err, &refused) {
		said["code"] = refused.Code
	}
	return said
}

func transport(door, directory string) mcp.Transport {
	ca, err := os.ReadFile(filepath.Join(directory, "ca.crt"))
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	own, err := tls.LoadX509KeyPair(filepath.Join(directory, "agent.crt"), filepath.Join(directory, "agent.key"))
	if err != nil {
		panic(err)
	}
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	return &mcp.StreamableClientTransport{Endpoint: door, HTTPClient: client}
}

func options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) {},
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) {},
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) {},
		ResourceUpdatedHandler:     func(context.Context, *mcp.ResourceUpdatedNotificationRequest) {},
		LoggingMessageHandler:      func(context.Context, *mcp.LoggingMessageRequest) {},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "username": "ada", "email": "ada@acme.test"}}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "test-model", Content: &mcp.TextContent{Text: "Paris."}}, nil
		},
	}
}

func main() {
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, options())
	client.AddRoots(&mcp.Root{URI: "file:///workspace"})
	session, err := client.Connect(ctx, transport(os.Args[1], os.Args[2]), &mcp.ClientSessionOptions{ProtocolVersion: os.Args[3]})
	if err != nil {
		say(failure(err))
		return
	}
	began := session.InitializeResult()
	say(map[string]any{"version": began.ProtocolVersion, "capabilities": began.Capabilities})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked order
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		result, err := obey(ctx, session, asked)
		said := map[string]any{"result": result}
		if err != nil {
			said = failure(err)
		}
		said["id"] = asked.ID
		say(said)
	}
}

func obey(ctx context.Context, session *mcp.ClientSession, asked order) (any, error) {
	switch asked.Do {
	case "tools":
		return session.ListTools(ctx, nil)
	case "call":
		return session.CallTool(ctx, &mcp.CallToolParams{Name: asked.Name, Arguments: asked.Arguments})
	case "prompts":
		return session.ListPrompts(ctx, nil)
	case "resources":
		return session.ListResources(ctx, nil)
	case "read":
		return session.ReadResource(ctx, &mcp.ReadResourceParams{URI: asked.Name})
	case "complete":
		return session.Complete(ctx, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: asked.Name},
			Argument: mcp.CompleteParamsArgument{Name: "city", Value: "par"}})
	case "level":
		return nil, session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"})
	case "subscribe":
		return nil, session.Subscribe(ctx, &mcp.SubscribeParams{URI: asked.Name})
	}
	return nil, errors.New("nothing of that name is done here")
}
