import { request } from 'node:https'
import { agentOf, type Identity } from '../gateway.ts'
import { freshModel, PATH } from './load.ts'
import type { Scope } from './scope.ts'
import type { Door, Stage } from './stage.ts'

/** A call that never ends by itself. */
export interface HeldCall {
  readonly model: string
  readonly kind: 'wait' | 'open'
  readonly at: string
  /** Resolves when its caller has lost it, with the status that it saw, if any. */
  readonly lost: Promise<{ readonly status: number; readonly lostAt: number }>
  /** Its caller hangs up. */
  readonly hangUp: () => void
}

/** Makes a call that waits for its answer (`wait`), or one whose answer is streamed (`open`); resolves once it is there. */
export async function heldCall(
  scope: Scope,
  stage: Stage<Door>,
  who: Identity,
  kind: HeldCall['kind'],
  at: { readonly name: string; readonly url: string },
): Promise<HeldCall> {
  const model = freshModel(kind)
  const agent = agentOf(stage.ca, who)
  const lost = Promise.withResolvers<{ status: number; lostAt: number }>()
  const begun = Promise.withResolvers<void>()
  let status = 0
  let isOver = false
  const over = (): void => {
    isOver = true
    lost.resolve({ status, lostAt: performance.now() })
    begun.reject(new Error(`a call was lost before it had begun: ${status}`))
  }
  const req = request(
    at.url + PATH,
    { method: 'POST', agent, headers: { 'content-type': 'application/json' } },
    (res) => {
      status = res.statusCode ?? 0
      res.on('data', () => kind === 'open' && begun.resolve())
      res.on('error', () => {}).on('close', over)
    },
  )
  req.on('error', over)
  req.end(JSON.stringify({ model, messages: [], stream: kind === 'open' }))
  scope.teardown(() => {
    req.destroy()
    agent.destroy()
  })
  if (kind === 'wait') void untilReached(stage, model, () => isOver).then(() => begun.resolve())
  await begun.promise
  return { model, kind, at: at.name, lost: lost.promise, hangUp: () => req.destroy() }
}

/** Resolves once a call has reached the provider, or is over. */
async function untilReached({ provider }: Stage<Door>, model: string, isOver: () => boolean): Promise<void> {
  while (!isOver() && !provider.reached.some((one) => one.model === model))
    await new Promise((resolve) => setTimeout(resolve, 5))
}
