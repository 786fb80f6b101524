import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { certifiedUser } from '../certs/certified.ts'
import { nonceOf, proofSigner, provenChat, tokenFor } from '../dpop.ts'
import { flood } from '../flood.ts'
import { CHAT, type Identity, type TestGateway, testGateway } from '../gateway.ts'
import { sallyport } from '../run.ts'

const CHAT_PATH = '/v1/chat/completions'
const HOUR_MS = 3_600_000

/** An operator's check that refuses one model, and one that never minds. */
const CHECKS = {
  '35-models.yaml': 'plugin: ./models.js\n',
  '36-calm.yaml': 'plugin: ./calm.js\n',
  'models.js': `export const plugin = (_, { Refusal }) => ({ name: 'models', needs: ['call'],
    admit: ({ call }) => { if (call.model === 'gpt-no') throw new Refusal('policy_denied') } })\n`,
  'calm.js': `export const plugin = () => ({ name: 'calm', needs: [], admit: () => {} })\n`,
}

/** A gateway of which the test sets the clock. */
interface Life {
  readonly gateway: TestGateway
  readonly pass: (ms: number) => void
  readonly chat: (who: Identity, asked?: object) => Promise<string>
}

/**
 * The export of a gateway that saw LLM calls of every fate: grants, revocations, proofs, tokens, rotated
 * certificates and keys, a user that was erased, checks, other modes, a flood. What each call was answered is
 * in `answers`. The gateway is closed.
 */
export async function livedExport(t: Test): Promise<{ file: string; answers: readonly string[] }> {
  const clock = { at: Date.now() }
  const gateway = await testGateway(t, { files: CHECKS, clock: () => clock.at })
  const life: Life = {
    gateway,
    pass: (ms) => {
      clock.at += ms
    },
    chat: async (who, asked = {}) => {
      const { status, json } = await gateway.call(who, 'POST', CHAT_PATH, { body: CHAT, ...asked })
      return `${status} ${json.reason ?? ''}`.trim()
    },
  }
  const answers = [
    ...(await grants(life)),
    ...(await proofs(life)),
    ...(await rotations(life)),
    ...(await erasure(t, life)),
    ...(await modes(life)),
  ]
  const poor = await gateway.enroll('poor', ['other'])
  await flood(gateway, poor, 70)
  await gateway.close(0)
  const file = join(t.testdir(), 'audit.ndjson')
  const database = gateway.settings.databaseUrl
  const { code, err } = await sallyport(['export-audit', database, '--out', file])
  if (code !== 0) throw new Error(`the export ended with ${code}: ${err}`)
  return { file, answers }
}

async function grants({ gateway, chat }: Life): Promise<readonly string[]> {
  const bot = await gateway.enroll('granted', ['llm.chat'])
  const path = `/v1/admin/agents/${bot.id}`
  const answers = [await chat(bot), await chat(bot, { body: { ...CHAT, model: 'gpt-no' } })]
  answers.push(await chat(bot, { body: { ...CHAT, model: 'nobodys' } }), await chat(bot, { body: '{' }))
  await gateway.admin('PATCH', `${path}/capabilities`, { capabilities: ['other'] })
  answers.push(await chat(bot))
  await gateway.admin('PATCH', `${path}/capabilities`, { capabilities: [] })
  answers.push(await chat(bot))
  await gateway.admin('PATCH', `${path}/capabilities`, { capabilities: ['llm.chat', 'other'] })
  answers.push(await chat(bot))
  await gateway.admin('DELETE', path)
  answers.push(await chat(bot))
  await gateway.admin('POST', `${path}/reactivate`)
  return [...answers, await chat(bot)]
}

async function proofs({ gateway, chat }: Life): Promise<readonly string[]> {
  const bot = await gateway.enroll('proven', ['llm.chat', 'other'])
  const [own, next, other] = [proofSigner(), proofSigner(), proofSigner()]
  const path = `/v1/admin/agents/${bot.id}/dpop-jwk`
  const nonce = await nonceOf(gateway, bot)
  const proven = async (signer: typeof own, more: object = {}): Promise<string> => {
    const { status, json } = await provenChat(gateway, bot, signer, { nonce, ...more })
    return `${status} ${json.reason ?? ''}`.trim()
  }
  const answers = [await proven(other)]
  await gateway.admin('POST', path, own.jwk)
  answers.push(await proven(own), await proven(other))
  await gateway.admin('POST', path, next.jwk)
  answers.push(await proven(own), await proven(next))
  const bound = await tokenFor(gateway, bot, other, { scope: 'llm.chat' })
  const narrow = await tokenFor(gateway, bot, other, { scope: 'other' })
  const plain = await tokenFor(gateway, bot, null)
  answers.push(await proven(other, { token: bound.json.access_token }))
  answers.push(await proven(other, { token: narrow.json.access_token }))
  const headers = { authorization: `Bearer ${plain.json.access_token}` }
  return [...answers, await chat(bot, { headers }), await chat(bot)]
}

async function rotations({ gateway, chat, pass }: Life): Promise<readonly string[]> {
  const old = await gateway.enroll('rotated', ['llm.chat'])
  const path = `/v1/admin/agents/${old.id}/rotate-cert`
  const { json } = await gateway.admin('POST', path, { grace_hours: 1 })
  const now = { id: old.id, cert: json.cert_chain_pem, key: json.private_key_pem }
  const answers = [await chat(old), await chat(now)]
  pass(2 * HOUR_MS)
  return [...answers, await chat(old), await chat(now)]
}

async function erasure(t: Test, { gateway, chat }: Life): Promise<readonly string[]> {
  const [zoe, ann] = [
    await certifiedUser(t, gateway, { user_name: 'zoe' }),
    await certifiedUser(t, gateway, { user_name: 'ann' }),
  ]
  const answers = [await chat(zoe.who), await chat(ann.who)]
  await gateway.admin('POST', `/v1/admin/users/${zoe.who.id}/erase`)
  return [...answers, await chat(zoe.who), await chat(ann.who)]
}

async function modes({ gateway, chat }: Life): Promise<readonly string[]> {
  const bot = await gateway.enroll('asked', ['llm.chat'])
  const file = join(gateway.pluginsDir, '20-dpop.yaml')
  const before = await readFile(file, 'utf8')
  const answers: string[] = []
  for (const mode of ['required', '"off"']) {
    await writeFile(file, `plugin: dpop\negress_dpop_mode: ${mode}\n`)
    await gateway.reload()
    answers.push(await chat(bot))
  }
  await writeFile(file, before)
  await gateway.reload()
  return [...answers, await chat(bot)]
}
