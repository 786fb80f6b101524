import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createFetch } from '../../../scripts/client/client.ts'
import { identityDirectory } from '../../support/clients/identity.ts'
import { CHAT, scratch, testGateway } from '../../support/gateway.ts'
import { signer } from '../../support/sealed-log.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'
import { allVerifiers } from '../../support/verifiers.ts'

const sallyport = verbsInTurn(t)

const BODY = JSON.stringify({ ...CHAT, messages: [{ role: 'user', content: 'What did I ask?' }] })

async function calledOnce(t: Test) {
  const gateway = await testGateway(t)
  const identity = await identityDirectory(t, gateway)
  const answer = await createFetch(identity)(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: BODY,
  })
  await answer.arrayBuffer()
  const directory = await scratch(t)
  return {
    gateway,
    identity,
    id: String(answer.headers.get('x-request-id')),
    file: join(directory, 'receipt.json'),
  }
}

t.test(
  'sallyport receipt: its caller shows with one file that exactly this body was judged then',
  async (t) => {
    const { identity, id, file } = await calledOnce(t)
    const verify = allVerifiers(t)
    const ran = await sallyport(['receipt', id, '--identity', identity, '--out', file])
    t.match(ran, { code: 0, err: '' })
    const [, key = ''] = /--key '(\S+)'/.exec(ran.out) ?? []
    t.equal(statSync(file).mode & 0o777, 0o600, 'it opens what the ledger has only committed to')
    const body = `${file}.body`
    writeFileSync(body, BODY)
    const said = await verify(file, '--body', body, '--key', key)
    t.match(said, { code: 0, last: 'VERIFIED' })
    t.match(said.out, /egress_llm_chat/)
    writeFileSync(body, BODY.replace('ask', 'say'))
    t.equal((await verify(file, '--body', body, '--key', key)).code, 2, 'another body')
    t.equal((await verify(file, '--key', signer('sallyport.local/acme/audit').vkey)).code, 3, 'another key')
    t.match(await verify(file), { code: 0, last: 'CONSISTENT, NOT WITNESSED' })

    const kept = readFileSync(file)
    t.match(await sallyport(['receipt', id, '--identity', identity, '--out', file]), {
      code: 1,
      err: /EEXIST/,
    })
    t.same(readFileSync(file), kept, 'a file that is there stays as it is')
  },
)

t.test(
  'sallyport receipt: of a call that is not its own there is none, nor of one that never was',
  async (t) => {
    const { gateway, id, file } = await calledOnce(t)
    const other = await identityDirectory(t, { ...gateway, enroll: () => gateway.enroll('other', []) })
    const receipt = (...args: readonly string[]) => sallyport(['receipt', ...args, '--out', file])
    for (const asked of [id, 'req_00000000000000000000000000'])
      t.match(await receipt(asked, '--identity', other), { code: 1, out: '', err: /^sallyport: / })
    t.match(await receipt('../x', '--identity', other), { code: 1, err: /is no request id/ })
    t.match(await receipt(id), { code: 1, err: /--identity DIR/ })
    t.match(await receipt(id, '--identity', `${other}-no`), { code: 1, out: '' })
  },
)
