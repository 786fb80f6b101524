import t from 'tap'
import { Refusal } from '../../plugins/refusal.ts'

await t.test(
  'a refusal takes no stack, which would cost more than all the rest of it; its cause keeps its own',
  (t) => {
    const limit = Error.stackTraceLimit
    const cause = new Error('broke')
    const refusal = new Refusal('internal', { cause })
    t.equal(refusal.stack, `Error: ${refusal.message}`)
    t.match(String(cause.stack), 'refusal.test.ts')
    t.equal(refusal.cause, cause)
    t.equal(Error.stackTraceLimit, limit, 'other errors have one as before')
    t.match(String(new Error('next').stack), 'refusal.test.ts')
    t.end()
  },
)
