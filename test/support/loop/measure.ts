import { holdOf } from '../loop-hold.ts'

/*
 * Loaded into a gateway's process before anything else (`--import`): measures how long its loop is held, from
 * one message of its parent to the next. In a test's own process every promise would cost what the runner keeps of it.
 */

let end: (() => void) | null = null

process.on('message', () => {
  if (end) {
    end()
    end = null
    return
  }
  const { promise, resolve } = Promise.withResolvers<void>()
  end = resolve
  void holdOf(() => promise).then(({ ownMs, worstMs }) => process.send?.({ ownMs, worstMs }))
  process.send?.('measuring')
})
