import { join } from 'node:path'
import t from 'tap'
import { type Ran, run } from '../support/clients/files.ts'
import { callsOf, SAID } from '../support/clients/sdk.ts'
import { DENIED, through, UNPROVEN } from '../support/clients/through.ts'
import { CHAT } from '../support/gateway.ts'

/** curl as README has it. What it prints ends with a line of the status. */
const curl = (base: string, body: object, ...args: readonly string[]): Promise<Ran> =>
  run('curl', [
    ...['-sSN', '--noproxy', '*', '-w', '\\n%{http_code}', `${base}/v1/chat/completions`],
    ...['-H', 'content-type: application/json', '-d', JSON.stringify(body), ...args],
  ])

await t.test(
  '§5.2 curl through the sidecar: an answer, a stream and a refusal, each call proven by DPoP',
  async (t) => {
    const { sidecar, deny, proven } = await through(t)
    const [answer = '', ok] = (await curl(sidecar, CHAT)).out.split('\n')
    t.equal(ok, '200')
    t.equal(JSON.parse(answer).choices[0].message.content, SAID)

    const streamed = await curl(sidecar, { ...CHAT, stream: true })
    t.equal(streamed.code, 0, streamed.err)
    t.match(streamed.out, /\ndata: \[DONE\]\n\n\n200$/)
    const pieces = [...streamed.out.matchAll(/"delta":(\{.*?\})/g)]
    t.equal(pieces.map(([, delta = '']) => JSON.parse(delta).content ?? '').join(''), SAID)

    await deny()
    for (const stream of [false, true]) {
      const [refusal = '', status] = (await curl(sidecar, { ...CHAT, stream })).out.split('\n')
      t.equal(status, '403')
      t.match(JSON.parse(refusal), { reason: 'capability_missing', message: DENIED })
    }
    t.same(await proven(), ['allowed', 'allowed', 'denied', 'denied'])
  },
)

await t.test(
  '§5.2 curl with the certificate alone is refused 401 where a proof is required, and told so',
  async (t) => {
    const { gateway, mock, directory, proven } = await through(t)
    const file = (name: string): string => join(directory, name)
    const certificate = ['--cacert', file('org-ca.crt'), '--cert', file('agent.crt')]
    const ran = await curl(gateway.url, CHAT, ...certificate, '--key', file('agent.key'))
    const [refusal = '', status] = ran.out.split('\n')
    t.equal(status, '401', ran.err)
    t.match(JSON.parse(refusal), { reason: 'proof_required', message: UNPROVEN })
    t.same(await proven(), [])
    t.equal(callsOf(mock).length, 0, 'the provider heard nothing of it')
  },
)
