import type { Client } from '@modelcontextprotocol/client'
import type { DemoAgent } from './agents.ts'
import { demoRow, type SayLine } from './calls.ts'
import type { DemoGateway } from './gateway.ts'
import { playAllowedCall } from './mcp.ts'

const OPERATOR = { name: 'operator' }
const LEAST = ['llm.chat', 'mcp.tools.list', 'notes.read']

interface DemoCaller {
  readonly client: Client
  readonly agent: DemoAgent
}

/**
 * An operator is about to take capabilities away from the agent; rehearsed on its calls so far, one set would stop it and
 * a wider one would not. Makes the change that stops nobody, and sends a call again. Rejects at the first step that goes
 * otherwise than it should.
 */
export async function playRehearsal(
  gateway: DemoGateway,
  { client, agent }: DemoCaller,
  say: SayLine,
): Promise<void> {
  const { id } = agent
  say('\nBefore capabilities are taken away, the change is rehearsed on the calls that were made.\n')
  const tooNarrow = await rehearsed(gateway, id, ['llm.chat'], say)
  if (!tooNarrow.stops || !/ notes\.read_note +notes\.read +2 /.test(tooNarrow.out))
    throw new Error('the rehearsal should have found the calls of notes.read_note')
  const fits = await rehearsed(gateway, id, LEAST, say)
  const [, rehearsal] = /^rehearsal (\S+)$/m.exec(fits.out) ?? []
  if (fits.stops || rehearsal === undefined) throw new Error('the least set should stop nobody')
  const change = { capabilities: LEAST }
  await gateway.admin('PATCH', `/v1/admin/agents/${id}/capabilities`, change, { 'if-rehearsed': rehearsal })
  say(
    demoRow(
      'changed',
      OPERATOR,
      'admin API',
      `PATCH ${id} to ${JSON.stringify(LEAST)}, If-Rehearsed: ${rehearsal}`,
    ),
  )
  await playAllowedCall(client, agent, say)
}

async function rehearsed({ rehearse }: DemoGateway, id: string, set: readonly string[], say: SayLine) {
  const args = [id, '--set', set.join(','), '--last', '1h']
  say(demoRow('asked', OPERATOR, 'sallyport', `rehearse ${args.join(' ')}`))
  const found = await rehearse(...args)
  for (const line of found.out.trimEnd().split('\n')) say(`      ${line}`)
  return found
}
