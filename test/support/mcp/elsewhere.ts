import { Worker } from 'node:worker_threads'
import type { Test } from 'tap'
import type { Identity } from '../gateway.ts'
import type { As, Command, Heard, Prepared, Sent } from './elsewhere-thread.ts'

/** An MCP server, and a caller, on a thread of their own: what they do is no part of what this thread does. */
export interface Elsewhere {
  /** The server, of the legacy era. */
  readonly url: string
  /** Sets what the server answers to a method: JSON text of a result or an error. */
  readonly answer: (method: string, result: string, as?: As) => Promise<void>
  /** Has a request ready, so that sending it costs nothing here. */
  readonly prepare: (name: string, request: Prepared) => Promise<void>
  /** Sends a prepared request to a gateway, as this agent or without a certificate. */
  readonly send: (name: string, to: { url: string; ca: string }, as: Identity | null) => Promise<Sent>
}

const CODE = new URL('./elsewhere-thread.ts', import.meta.url)

/** Starts the thread; it ends with the test. */
export async function elsewhere(t: Test): Promise<Elsewhere> {
  const thread = new Worker(CODE)
  t.teardown(() => thread.terminate())
  const asked: PromiseWithResolvers<Heard>[] = []
  const ready = Promise.withResolvers<Heard>()
  asked.push(ready)
  thread.on('message', (heard: object) => 'kind' in heard && asked.shift()?.resolve(heard as Heard))
  thread.on('error', (error) => {
    for (const { reject } of asked) reject(error)
  })
  const tell = (command: Command): Promise<Heard> => {
    const answered = Promise.withResolvers<Heard>()
    asked.push(answered)
    thread.postMessage(command)
    return answered.promise
  }
  const { url } = await ready.promise
  return {
    url,
    answer: async (method, result, as = 'json') => void (await tell({ do: 'answer', method, result, as })),
    prepare: async (name, request) => void (await tell({ do: 'prepare', name, request })),
    send: async (name, { url: to, ca }, as) => {
      const { sent } = await tell({ do: 'send', name, to, ca, ...(as && { cert: as.cert, key: as.key }) })
      if (!sent) throw new Error(`${name} was not sent`)
      return sent
    },
  }
}
