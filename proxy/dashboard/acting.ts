import type { Administered } from '../../plugins/operators/operator.ts'
import { administerOnRecord } from '../admin/administer.ts'
import type { Given, Operation, Takes } from '../admin/operation.ts'
import type { Reply } from '../http/reply.ts'
import type { Form } from '../operators/pages/form.ts'
import { seeOther } from '../operators/pages/page.ts'
import type { Dashboard } from './dashboard.ts'

/** A request with the form of a page. */
export type Submitted = Administered & Form

/** What a form asks for, and where its browser goes on. */
interface Acting<T extends Takes> {
  readonly given: (facts: Submitted) => Given<T>
  /** The page that it came from: a path of ours. */
  readonly to: (facts: Submitted) => string
  /** The word of the notice there (frame.ts). */
  readonly notice: string
}

/** Makes the handler of a form that has nothing to show: it does what the API does, and leads back. */
export const acting =
  <T extends Takes, Output>(
    { context }: Dashboard,
    operation: Operation<T, Output>,
    { given, to, notice }: Acting<T>,
  ) =>
  async (facts: Submitted): Promise<Reply> => {
    const done = await administerOnRecord(operation, context, given(facts), facts)
    return seeOther(`${to(facts)}?notice=${'proposed' in done ? 'proposed' : notice}`)
  }

/** The input of an operation on the object that the path names. */
export const byId = ({ params, form }: Submitted) => ({
  params: { id: params.id ?? '' },
  ...(form.get('if_match') && { ifMatch: form.get('if_match') }),
})
