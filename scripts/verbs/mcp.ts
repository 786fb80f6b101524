import { command } from '../command.ts'

const HELP = `usage: sallyport mcp VERB …      (or: make mcp ARGS="VERB …")

Puts MCP servers behind the gateway, over its control socket; works beside a running gateway and without one.

  add NAME URL         register a server; its tools are read and pinned as they are now
    --capability CAP         what each of its tools demands (default: mcp.tools.call)
    --tool-capability T=CAP  what one tool demands instead; may be repeated
    --auth TYPE              bearer, api_key or mtls (default: none)
    --secret REF             where its secret is: env:NAME or file:/absolute/path, never the secret itself
    --allowed-domain HOST    connect to this host only; may be repeated
    --description TEXT
    --bind ID                let this principal reach it; may be repeated
  list [--json]        every server
  show NAME [TOOL]     one server, its tools, and how the quarantined ones differ from what was approved; with TOOL its
                       whole definition, as it was approved and as it waits
  refresh NAME         read its tools again
  approve NAME TOOL    show what waits, whole, and how it differs, ask, and approve exactly that definition
    --digest HEX             only the definition of this digest, as show printed it, without asking
    --yes                    whatever is shown, without asking
  bind NAME ID…        let agents, users or workloads reach it, each with the capabilities that it holds
  unbind NAME ID…      holds on the next call
  disable NAME         switch a server off, on the next call; what was approved and who is bound stays
  enable NAME          switch it on again
  remove NAME          with its pinned tools and its bindings; added again, whatever it lists then is approved

A server on this machine or in a private network needs MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS=true where the gateway runs.
Exit code: 0, or 1 with one sentence.
`

await command(HELP, async (args) => {
  const { mcpVerb } = await import('./mcp-verb.ts')
  await mcpVerb(args)
})
