import { type Answered, agentOf, CHAT, type Identity, type TestGateway } from './gateway.ts'

export type Agent = ReturnType<typeof agentOf>

/** Makes a call, the n-th of many. */
export type Send = (n: number) => Promise<Answered>

/**
 * The same call so many times, on ten kept connections; resolves with the answers in the order of their
 * numbers.
 */
export async function flood(
  gateway: TestGateway,
  who: Identity,
  times: number,
  call: (agent: Agent) => Send = chatOn(gateway, who),
): Promise<readonly Answered[]> {
  const agents = Array.from({ length: 10 }, () => agentOf(gateway.ca, who, true))
  const answers: Answered[] = []
  let next = 0
  const work = agents.map(async (agent) => {
    for (let n = next++; n < times; n = next++) answers[n] = await call(agent)(n)
  })
  await Promise.all(work)
  for (const agent of agents) agent.destroy()
  return answers
}

export const chatOn =
  (gateway: TestGateway, who: Identity) =>
  (agent: Agent): Send =>
  () =>
    gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT, agent })
