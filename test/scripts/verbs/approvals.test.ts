import t from 'tap'
import type { AdminCall } from '../../../scripts/admin/call.ts'
import { verb } from '../../../scripts/verbs/approvals.ts'
import { verb as mcp } from '../../../scripts/verbs/mcp.ts'
import { approvalStage, askedIn } from '../../support/approvals/stage.ts'
import { as, operatorNamed } from '../../support/operators.ts'

await t.test(
  'sallyport approvals lists, shows, approves and declines calls, and mcp approval sets the rule',
  async (t) => {
    const { stage, bot } = await approvalStage(t, { tool_approvals: {} })
    const owner = as(
      stage,
      await operatorNamed(stage, 'own', ['admin.read', 'admin.tools', 'admin.grant', 'admin.approve']),
    )
    const call: AdminCall = async (method, path, body) => {
      const { status, json } = await owner(method, path, body)
      return { status, body: json }
    }
    const run = async (of: typeof verb, ...args: readonly string[]): Promise<string> => {
      const out: string[] = []
      await of.perform(
        args,
        (_door, work) => work(call),
        (text) => out.push(text),
      )
      return out.join('')
    }
    t.match(await run(verb, 'list'), 'no call waits for an approval')
    t.match(await run(mcp, 'approval', 'files', 'operator', 'pay'), 'needs the approval of: operator')
    t.match(await run(mcp, 'show', 'files'), 'each call approved by an operator')
    await t.rejects(run(mcp, 'approval', 'files', 'anybody'), /approval/)
    const pay = (n: number) =>
      stage.callTool(bot, 'files.pay', { n, hidden: `a\u202eb${' '.repeat(5_000)}rm` })
    const [one, other] = [askedIn(await pay(1)), askedIn(await pay(2))]
    const listed = await run(verb, 'list')
    t.match(listed, new RegExp(`${one} +open +acme::bot +files\\.pay`))
    const shown = await run(verb, 'show', one)
    t.match(shown, 'acme::bot (agent)')
    t.match(shown, 'b[5000 spaces]rm')
    t.notMatch(shown, '\u202e', 'a terminal obeys nothing of it')
    t.match(await run(verb, 'approve', one, '--reason', 'Fine.'), 'approved: the call passes once')
    t.match(await run(verb, 'decline', other), 'declined')
    t.ok((await pay(1)).json.result)
    t.match((await pay(2)).json.error.message, 'gave no reason')
    t.match(await run(verb, 'list', '--all'), new RegExp(`${one} +used`))
    await t.rejects(run(verb, 'approve', one), /already approved/)
    await t.rejects(run(verb, 'show', 'apr_0'), /no approval with this id/)
    t.match(await run(mcp, 'approval', 'files', 'nobody', 'pay'), 'need no approval')
    t.ok((await pay(3)).json.result)
    const rehearsed = await run(mcp, 'approval', 'files', 'operator', 'pay', '--rehearse')
    t.match(rehearsed, /approval_required +1 /)
    t.match(rehearsed, 'asked to approve 1 calls a day, 1 at the most (on 1 of the days)')
    t.match(rehearsed, 'nothing is changed')
    t.match(await run(mcp, 'proof', 'files', '--min', 'none', '--rehearse'), 'nothing is changed')
    t.ok((await pay(4)).json.result)
  },
)
