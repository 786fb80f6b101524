import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { Agent } from 'node:https'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import { readyUrl } from '../../scripts/cluster/replica.ts'
import { ENGINE } from '../support/db/engine.ts'
import { ADMIN_SECRET, agentOf, ask, CHAT } from '../support/gateway.ts'
import { environment } from '../support/process.ts'
import { withoutTmpfs } from '../support/small-disk.ts'
import { testUpstream } from '../support/upstream.ts'

const MAIN = join(import.meta.dirname, '../../proxy/main.ts')
/** Nothing may be written where temporary files go by custom, the working directory included. */
const WITHOUT_TMP =
  'for each in /tmp /var/tmp; do mount -t tmpfs -o ro tmpfs $each; done; cd /tmp; exec "$0" "$@"'

/** Hiding those directories would hide a checkout that lies in one. */
const isHidden = /^\/(?:var\/)?tmp\//.test(MAIN) && 'the checkout lies in a directory for temporary files'

const withoutServer = ENGINE === 'postgres' && 'the socket of the PostgreSQL of the tests lies in /tmp'

await t.test(
  'H16: a gateway writes nothing outside its data directory: without a /tmp it starts, serves, tells and ends',
  { skip: withoutServer || withoutTmpfs() || isHidden },
  async (t) => {
    const upstream = await testUpstream(t)
    const directory = t.testdir()
    const env = await environment(directory, upstream.url)
    const child = spawn('unshare', ['-m', 'bash', '-c', WITHOUT_TMP, process.execPath, MAIN], {
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const ended = once(child, 'exit')
    t.teardown(async () => {
      child.kill('SIGKILL')
      await ended
    })
    let url: string | null = null
    for await (const line of createInterface({ input: child.stdout })) {
      url = readyUrl(line)
      if (url !== null) break
    }
    child.stdout.resume()
    const anyone = new Agent({ rejectUnauthorized: false })
    const { text: ca } = await ask(`${url}/pki/ca.crt`, 'GET', { agent: anyone })
    const asAdmin = { agent: new Agent({ ca }), headers: { 'x-admin-secret': ADMIN_SECRET } }
    const admin = (method: string, path: string, body?: unknown) =>
      ask(`${url}/v1/admin/${path}`, method, { ...asAdmin, body })
    const { json } = await admin('POST', 'agents', { agent_name: 'bot', capabilities: ['llm.chat'] })
    const bot = agentOf(ca, { id: json.agent_id, cert: json.cert_chain_pem, key: json.private_key_pem })
    for (let n = 0; n < 3; n += 1)
      t.equal((await ask(`${url}/v1/chat/completions`, 'POST', { agent: bot, body: CHAT })).status, 200)
    const changes = [{ principal: 'acme::bot', capabilities: [] }]
    for (const [method, path, body] of [
      ['GET', 'audit?principal=acme::bot'],
      ['GET', 'audit/export'],
      ['POST', 'audit/verify'],
      ['POST', 'rehearsals', { changes }],
    ] as const) {
      const answer = await admin(method, path, body)
      t.equal(answer.status, 200, `${path}: ${answer.status} ${answer.text.slice(0, 200)}`)
    }
    child.kill('SIGTERM')
    t.same(await ended, [0, null])
  },
)
