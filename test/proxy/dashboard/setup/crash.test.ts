import { X509Certificate } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ADMIN_SECRET, type Asked, agentOf, ask, scratch } from '../../../support/gateway.ts'
import { environment, startProcess } from '../../../support/process.ts'
import { atOrganisation, caOf } from '../../../support/wizard.ts'

const NOWHERE = 'http://127.0.0.1:9'

/** Has a process kill itself where it is about to rename a file to a path that ends so: `kill -9` at that very moment. */
const killedAt = (end: string): readonly string[] => {
  const code = `import fs from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'
const { rename } = fs
fs.rename = async (from, to) => {
  if (\`\${from} \${to}\`.includes('authority.replacing') && String(to).endsWith(${JSON.stringify(end)})) {
    process.kill(process.pid, 'SIGKILL')
    await new Promise(() => {})
  }
  return rename(from, to)
}
syncBuiltinESMExports()`
  return ['--import', `data:text/javascript,${encodeURIComponent(code)}`]
}

/** A gateway that was killed there while the organisation was named, and what starts on what it has left. */
async function startedAgain(t: Test, end: string) {
  const root = await scratch(t)
  const env = await environment(root, NOWHERE)
  const first = startProcess(t, env, killedAt(end))
  const url = await first.ready
  const ca = await caOf(url)
  const call = (_: null, method: string, path: string, asked?: Asked) =>
    ask(url + path, method, { ...asked, agent: agentOf(ca, null) })
  const { send } = await atOrganisation({ call: call as never })
  await t.rejects(send({ org: 'initech', trust_domain: 'initech.example' }))
  t.equal((await first.ended).signal, 'SIGKILL')
  const again = startProcess(t, env)
  const now = await again.ready
  return { before: ca, after: await caOf(now), url: now, directory: join(root, 'data', 'ca') }
}

for (const end of ['authority.replacing', 'intermediate.key.sealed']) {
  await t.test(
    `a gateway that is killed before it moves ${end} into place starts with the new CA, whole`,
    async (t) => {
      const { before, after, url, directory } = await startedAgain(t, end)
      t.not(after, before)
      t.match(new X509Certificate(after).subject, 'O=initech')
      const { status, json } = await ask(`${url}/v1/admin/agents`, 'POST', {
        agent: agentOf(after, null),
        headers: { 'x-admin-secret': ADMIN_SECRET },
        body: { agent_name: 'bot', capabilities: [] },
      })
      t.equal(status, 201)
      t.match(new X509Certificate(json.cert_chain_pem).issuer, 'O=initech')
      t.notOk((await readdir(directory)).includes('authority.replacing'))
    },
  )
}
