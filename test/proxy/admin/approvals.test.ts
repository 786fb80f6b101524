import t from 'tap'
import { Refusal } from '../../../plugins/refusal.ts'
import { OPERATIONS } from '../../../proxy/admin/http/operations.ts'
import { type InputSchemas, inputOf, type RawInput } from '../../../proxy/admin/operation/operation.ts'

interface Named {
  readonly name: string
  readonly takes: InputSchemas
}

const every: readonly Named[] = Object.values(OPERATIONS).flatMap((family) =>
  Object.values(family).filter((one): one is Named => 'takes' in one),
)

function reasonOf(work: () => unknown): unknown {
  try {
    work()
    return null
  } catch (error) {
    return error instanceof Refusal ? error.reason : error
  }
}

t.test('H6: no operation that approves does so without the digest of what was read', async (t) => {
  // The id of a call to approve is of its arguments and definition for ever: nothing else can be read behind it.
  const approving = every.filter(({ name }) => /^approve(?!Call$)/.test(name))
  t.same(approving.map(({ name }) => name).sort(), ['approveMcpServer', 'approveMcpTool'])
  for (const { name, takes } of approving) {
    const params = { resource_id: 'r', tool: 't' }
    const asked = (body: unknown) => inputOf(takes, { params, body } as RawInput<InputSchemas>)
    for (const body of [undefined, {}, { digest: null }, { digest: '' }, { digest: '*' }]) {
      t.equal(
        reasonOf(() => asked(body)),
        'body_unprocessable',
        `${name} ${JSON.stringify(body)}`,
      )
    }
    t.equal(
      reasonOf(() => asked({ digest: 'a'.repeat(64) })),
      null,
      name,
    )
  }
})
