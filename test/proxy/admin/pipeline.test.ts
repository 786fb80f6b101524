import t from 'tap'
import type { AdminContext } from '../../../proxy/admin/operation/context.ts'
import type { AnyOperation } from '../../../proxy/admin/operation/operation.ts'
import { resolvedChange } from '../../../proxy/admin/pipeline.ts'

t.test(
  'the questions of a change share one reading of whom it is about, until time has passed',
  async (t) => {
    let readings = 0
    const rehearses = async () => {
      readings += 1
      return []
    }
    // A change that no rehearsal describes asks nothing of the database.
    const [context, operation] = [{} as AdminContext, { rehearses } as unknown as AnyOperation]
    const { resolve, forget } = await resolvedChange(context).admit({ operation, input: {} })
    t.equal(readings, 0, 'nothing is read before somebody asks')
    t.same([await resolve(), await resolve()], [null, null])
    t.equal(readings, 1)
    forget()
    await resolve()
    t.equal(readings, 2, 'after a rehearsal the next question reads what is so by then')
  },
)
