// An MCP server on the official SDK of Go, whose reader of JSON folds the names of members. It says its URL, and then the
// tools that it ran.
package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type arguments struct {
	Path  string `json:"path,omitempty"`
	Token string `json:"token,omitempty"`
}

type run struct {
	Tool string `json:"tool"`
	Path string `json:"path"`
}

var lock sync.Mutex

// say prints a line of JSON.
func say(what any) {
	lock.Lock()
	defer lock.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
		panic(err)
	}
}

// tool adds a tool with an open schema, which says what it ran, and returns it.
func tool(server *mcp.Server, name string) {
	schema := map[string]any{"type": "object", "properties": map[string]any{"path": map[string]any{"type": "string"}}}
	server.AddTool(&mcp.Tool{Name: name, Description: "Does " + name + ".", InputSchema: schema},
		func(_ context.Context, asked *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var given arguments
			if err := json.Unmarshal(asked.Params.Arguments, &given); err != nil {
				return nil, err
			}
			text, err := json.Marshal(run{name, given.Path})
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, err
		})
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "go", Version: "1"}, nil)
	tool(server, "read_file")
	tool(server, "delete_file")
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	say(map[string]string{"url": "http://" + listener.Addr().String() + "/mcp"})
	panic(http.Serve(listener, handler))
}
