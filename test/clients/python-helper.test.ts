import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { fileBeside, run } from '../support/clients/files.ts'
import { through } from '../support/clients/through.ts'
import { FINISHED, onlyProvider, scripted, type ToldTurn } from '../support/clients/turns.ts'

const { code } = await run('python3', ['-c', 'import cullis_sdk']).catch(() => ({ code: null }))
const skip = code === 0 ? false : 'not installed here: pip install cullis-sdk==0.2.2'

/** An agent of thirty lines: it streams, runs the tools that are called, and goes on until none is. */
const AGENT = `
import json, os, sys
from cullis_sdk import CullisClient
url, here, model = sys.argv[1:]
at = lambda name: os.path.join(here, name)
client = CullisClient.from_identity_dir(
    url, cert_path=at("agent.crt"), key_path=at("agent.key"),
    dpop_key_path=at("dpop.jwk"), ca_chain_path=at("org-ca.crt"), timeout=60)
tools = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
pixel = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
messages = [{"role": "user", "content": "hi"}]

def stream():
    text, calls = "", {}
    for frame in client.chat_completion_stream(model=model, messages=messages, tools=tools):
        data = frame.split("data: ", 1)[-1].strip() if "data: " in frame else ""
        if data in ("", "[DONE]"):
            continue
        event = json.loads(data)
        if "error" in event:
            raise SystemExit("CUT " + event["error"]["message"])
        delta = event["choices"][0]["delta"] if event["choices"] else {}
        text += delta.get("content") or ""
        for piece in delta.get("tool_calls") or []:
            call = calls.setdefault(piece["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
            call["id"] = piece.get("id") or call["id"]
            for key, more in piece["function"].items():
                call["function"][key] += more or ""
    return text, list(calls.values())

while True:
    text, calls = stream()
    messages.append({"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})})
    if not calls:
        break
    for call in calls:
        file = json.loads(call["function"]["arguments"])["file"]
        said = "[error] no such file" if file == "none" else "what %s says" % file
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})
    messages.append({"role": "user", "content": [pixel]})
print(text)
`

const call = (id: string, file: string) => ({ call: id, tool: 'read', input: { file } })

await t.test(
  '§4 the Python helper works on a model of the Messages API: turns of tools, two at once, one that fails',
  { skip },
  async (t) => {
    const way = await through(t, onlyProvider('messages', 'some-model'))
    // It sends no token: its proofs are by the registered key.
    const { kty, crv, x, y } = JSON.parse(readFileSync(join(way.directory, 'dpop.jwk'), 'utf8'))
    const registered = await way.gateway.admin('POST', '/v1/admin/agents/acme::bot/dpop-jwk', {
      kty,
      crv,
      x,
      y,
    })
    t.equal(registered.status, 200)
    const script = fileBeside({ ca: join(way.directory, 'org-ca.crt') }, 'agent.py', AGENT)
    const ask = () =>
      run('env', ['no_proxy=localhost', 'python3', script, way.gateway.url, way.directory, 'some-model'])
    const told: ToldTurn[] = []
    way.gateway.upstream.answer = scripted(
      'messages',
      [
        { parts: [{ think: 'hm' }, { say: 'I look.' }, call('call_0', 'a')] },
        { parts: [call('call_1', 'b'), call('call_2', 'none')] },
        { parts: [call('call_3', 'c')] },
      ],
      told,
    )
    const ran = await ask()
    t.match(ran, { code: 0, out: `${FINISHED}\n` }, 'it ends its work', { err: ran.err })
    const { results = [], body } = told.at(-1) ?? {}
    t.same(
      results.map(({ id }) => id),
      ['call_0', 'call_1', 'call_2', 'call_3'],
    )
    t.match(results[2]?.text, '[error] no such file')
    t.match(JSON.stringify(body), /"type":"image".*"data":"AAAA"/, 'and a picture')

    way.gateway.upstream.answer = scripted('messages', [{ parts: [call('call_0', 'a')], isCut: true }], [])
    const cut = await ask()
    t.match(
      cut,
      { code: 1, err: /incomplete chunked read|broke off/ },
      'a call of a stream that is cut is not run',
    )
    way.gateway.upstream.answer = (res) => {
      res.statusCode = 400
      res.setHeader('content-type', 'application/json')
      const error = { type: 'invalid_request_error', message: 'prompt is too long: 2 tokens > 1 maximum' }
      res.end(JSON.stringify({ type: 'error', error }))
    }
    t.match(await ask(), { code: 1, err: /400 Bad Request/ }, 'a context that is full')
    t.same(new Set(await way.proven()), new Set(['allowed']), 'each call was proven')
  },
)
