import { fork } from 'node:child_process'
import { constants, setPriority } from 'node:os'
import { join } from 'node:path'
import { ADMIN_SECRET, agentOf, ask, type Identity } from '../gateway.ts'
import type { HerdPlan, HerdTry } from './herd-clients.ts'
import type { Replica } from './replicas.ts'
import type { Door, Stage } from './stage.ts'

/** The clients of one principal. */
const CLIENTS_OF_EACH = 20

/**
 * Has so many clients connect at once, as after an outage, each with a connection, a proof key and an address of its
 * own. They are a process of their own, since this one carries what replicas and database say to each other, and
 * replicas stand back for them: a client that has no processor is silent. `onServed` is told how many have been served.
 */
export async function herd(
  { replicas, door, enroll }: Stage<Door>,
  size: number,
  onServed: (count: number) => void,
): Promise<readonly HerdTry[]> {
  const bots: Identity[] = []
  for (let n = 0; n * CLIENTS_OF_EACH < size; n += 1) bots.push(await enroll(`herd-${n}`))
  for (const { pid } of replicas) setPriority(pid(), constants.priority.PRIORITY_BELOW_NORMAL)
  const clients = fork(join(import.meta.dirname, 'herd-clients.ts'))
  const at = replicas.map(({ name, port }) => ({ name, url: `https://127.0.0.1:${port}` }))
  const plan: HerdPlan = { size, bots, at, door: door.url, timeOrigin: performance.timeOrigin }
  clients.send(plan)
  return new Promise((resolve, reject) => {
    clients.on('message', (told: number | readonly HerdTry[]) => {
      if (typeof told === 'number') onServed(told)
      else resolve(told)
    })
    clients.once('exit', () => reject(new Error('the clients have ended')))
  })
}

/** The delay of a replica's event loop since this was asked last, p99 in ms. */
export async function loopP99(stage: Stage<Door>, { url }: Replica): Promise<number> {
  const agent = agentOf(stage.ca, null)
  const { text } = await ask(`${url}/metrics`, 'GET', { agent, headers: { 'x-admin-secret': ADMIN_SECRET } })
  return 1_000 * Number(/^nodejs_eventloop_lag_p99_seconds (\S+)$/m.exec(text)?.[1])
}
