import { amountText } from '../../plugins/limits/amount-text.ts'
import { parseUsd } from '../../plugins/prices/usd.ts'
import type { Rehearsal } from '../../proxy/admin/conditions/rehearsed.ts'
import type { LimitView } from '../../proxy/admin/limits/limits.ts'
import type { LimitUsage } from '../../proxy/admin/limits/usage.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { REHEARSE_OPTION, rehearseChanges } from '../admin/rehearsal.ts'
import { type PrintLines, subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { commandOf, JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines } from '../print.ts'

const LIMITS = '/v1/admin/limits'
const ONE_LIMIT = `name one limit: ${commandOf('sallyport ARGS="limits list"', 'limits list')} shows them`

const allLimits = async (call: AdminCall): Promise<readonly LimitView[]> =>
  expectStatus<{ readonly limits: readonly LimitView[] }>(await call('GET', LIMITS), 200).limits

/** Finds a limit by its name or id. */
async function limitOf(call: AdminCall, name: string): Promise<LimitView> {
  const limits = await allLimits(call)
  const found = limits.find((limit) => limit.name === name || limit.limit_id === name)
  if (found) return found
  const known = limits.slice(0, 12).map((limit) => limit.name)
  throw new Error(`there is no limit ${name}${known.length > 0 ? `; there are ${known.join(', ')}` : ''}`)
}

const pathOf = ({ limit_id: id }: LimitView): string => `${LIMITS}/${encodeURIComponent(id)}`

const scopeText = ({ for: scope }: LimitView): string =>
  Object.entries(scope)
    .map(([name, value]) => `${name}=${Array.isArray(value) ? value.join(',') : value}`)
    .join(' ') || 'every call'

const termText = (limit: LimitView): string => {
  const { measure, amount, per, each, on, strict, override } = limit
  const words = [
    `${amountText(measure, amount)}${per === undefined ? '' : ` per ${per}`}`,
    ...(each ? ['each'] : []),
    ...(strict ? ['strict'] : []),
    ...(on === 'alert' ? ['alerts only'] : []),
    ...(override ? [`${amountText(measure, override.amount)} until ${override.until}`] : []),
  ]
  return words.join(', ')
}

const list = subcommandOf({
  takes: '',
  about: 'every limit, and which calls it is for',
  options: JSON_OPTION,
  run: async ({ call, say, values: { json } }) => {
    const limits = await allLimits(call)
    if (json) return say(...jsonLines(limits))
    if (limits.length === 0) return say('there are no limits')
    say(
      ...alignColumns([
        ['NAME', 'LIMIT', 'FOR'],
        ...limits.map((one) => [one.name, termText(one), scopeText(one)]),
      ]),
    )
  },
})

/** Reads an amount: USD for cost, whole numbers for anything else. Throws a sentence for another text. */
export function amountIn(measure: string, text: string): number {
  if (measure === 'cost') {
    const microusd = parseUsd(text)
    if (microusd === null) throw new Error('an amount of cost is in USD: 25 or 0.50')
    return microusd
  }
  if (!/^\d{1,15}$/.test(text)) throw new Error('an amount is a whole number: 1000')
  return Number(text)
}

const namesIn = (text: string): readonly string[] => text.split(',').map((name) => name.trim())

const AMOUNT_OPTION = {
  amount: { type: 'string', value: 'N', description: 'USD for cost, else a whole number' },
} as const

type LimitEffectView = NonNullable<Rehearsal['limits']>[number]

/** Says what a change of a limit would have done, and makes no change. */
async function sayRehearsed(call: AdminCall, say: PrintLines, limit: object): Promise<void> {
  const found = await rehearseChanges(call, [{ limit }])
  for (const effect of found.limits ?? []) say(...effectLines(effect))
  say(`nothing is changed; rehearsal ${found.id}`)
}

function effectLines(effect: LimitEffectView): readonly string[] {
  const { name, summary, groups, measure } = effect
  const rows = groups.map((one) => [
    one.principal_id,
    String(one.calls),
    String(one.refused),
    one.first_refused?.at ?? '',
    one.first_refused?.request_id ?? '',
    amountText(measure, one.highest),
  ])
  const titles = ['WHO', 'CALLS', 'REFUSED', 'FIRST', 'REQUEST', 'HIGHEST']
  return [`${name}: ${summary}`, ...(rows.length > 0 ? alignColumns([titles, ...rows]) : [])]
}

const add = subcommandOf({
  takes: 'NAME',
  about: 'limit calls, from the next one on',
  misuse:
    'name the limit: sallyport limits add red-month --holding team.red --measure cost --amount 25 --per month',
  options: {
    measure: { type: 'string', value: 'WHAT', description: 'cost, tokens, calls or concurrent' },
    ...AMOUNT_OPTION,
    per: { type: 'string', value: 'TIME', description: 'second, minute, hour, day, week, month or ever' },
    burst: { type: 'string', value: 'N', description: 'the most at once, per second or minute alone' },
    holding: { type: 'string', value: 'CAPABILITY', description: 'principals that hold it' },
    principals: { type: 'string', value: 'A,B', description: 'their ids; acme::* is an organisation' },
    types: { type: 'string', value: 'A,B', description: 'agent, user, workload' },
    models: { type: 'string', value: 'A,B', description: 'provider/model; * stands for anything' },
    tools: { type: 'string', value: 'A,B', description: 'server.tool; * stands for anything' },
    each: { type: 'boolean', default: false, description: 'each principal has the amount' },
    strict: { type: 'boolean', default: false, description: 'never pass the amount' },
    'alert-only': { type: 'boolean', default: false, description: 'count, and refuse nothing' },
    hide: { type: 'boolean', default: false, description: 'tell callers no numbers' },
    ...REHEARSE_OPTION,
  },
  check: ({ measure, amount, per, burst, holding, each, strict, hide, ...more }) => {
    if (measure === undefined || amount === undefined) throw new Error('give --measure and --amount')
    const { principals, types, models, tools } = more
    const lists = Object.entries({ principals, types, models, tools }).flatMap(([name, text]) =>
      text === undefined ? [] : [[name, namesIn(text)]],
    )
    return {
      for: { ...(holding !== undefined && { holding }), ...Object.fromEntries(lists) },
      ...{ measure, amount: amountIn(measure, amount), each, strict, show: !hide },
      on: more['alert-only'] ? 'alert' : 'refuse',
      ...(per !== undefined && { per }),
      ...(burst !== undefined && { burst: amountIn('calls', burst) }),
    }
  },
  run: async ({ call, say, args: [name], values: { rehearse }, checked }) => {
    if (rehearse) return sayRehearsed(call, say, { name, ...checked })
    const made = expectStatus<LimitView>(await call('POST', LIMITS, { name, ...checked }), 201)
    say(`${made.name}: ${termText(made)}, for ${scopeText(made)}`)
  },
})

const set = subcommandOf({
  takes: 'NAME',
  about: 'change the amount of a limit',
  misuse: ONE_LIMIT,
  options: { ...AMOUNT_OPTION, ...REHEARSE_OPTION },
  check: ({ amount }) => {
    if (amount === undefined) throw new Error('give --amount')
    return amount
  },
  run: async ({ call, say, args: [name], values: { rehearse }, checked }) => {
    const limit = await limitOf(call, name)
    const amount = amountIn(limit.measure, checked)
    if (rehearse) return sayRehearsed(call, say, { id: limit.limit_id, amount })
    const changed = expectStatus<LimitView>(await call('PATCH', pathOf(limit), { amount }), 200)
    say(`${changed.name}: ${termText(changed)}`)
  },
})

const override = subcommandOf({
  takes: 'NAME',
  about: 'give a limit another amount until an instant, or end that',
  misuse: ONE_LIMIT,
  options: {
    ...AMOUNT_OPTION,
    end: { type: 'boolean', default: false, description: 'end the override that there is' },
    until: { type: 'string', value: 'INSTANT', description: 'RFC 3339: 2026-12-24T00:00:00Z' },
    reason: { type: 'string', value: 'TEXT', description: 'why, for the ledger' },
    ...REHEARSE_OPTION,
  },
  check: ({ amount, until, reason, end }) => {
    if (end && [amount, until, reason].every((one) => one === undefined)) return null
    if (end) throw new Error('give --end alone: it ends the override')
    if (amount === undefined || until === undefined || reason === undefined)
      throw new Error('give --amount, --until and --reason')
    return { amount, until, reason }
  },
  run: async ({ call, say, args: [name], values: { rehearse }, checked }) => {
    const limit = await limitOf(call, name)
    const path = `${pathOf(limit)}/override`
    const made = checked && { ...checked, amount: amountIn(limit.measure, checked.amount) }
    if (rehearse) return sayRehearsed(call, say, { id: limit.limit_id, override: made })
    const answered = made ? await call('POST', path, made) : await call('DELETE', path)
    const changed = expectStatus<LimitView>(answered, 200)
    say(`${changed.name}: ${termText(changed)}`)
  },
})

const remove = subcommandOf({
  takes: 'NAME',
  about: 'remove a limit; what has been counted stays in the ledger',
  misuse: ONE_LIMIT,
  options: REHEARSE_OPTION,
  run: async ({ call, say, args: [name], values: { rehearse } }) => {
    const limit = await limitOf(call, name)
    if (rehearse) return sayRehearsed(call, say, { id: limit.limit_id, remove: true })
    expectStatus(await call('DELETE', pathOf(limit)), 204)
    say(`${limit.name} is removed`)
  },
})

const usage = subcommandOf({
  takes: 'NAME',
  about: 'how much of a limit is used, by the highest first',
  misuse: ONE_LIMIT,
  options: {
    ...JSON_OPTION,
    span: { type: 'string', value: 'INSTANT', description: 'in the window that has it; default: now' },
  },
  run: async ({ call, say, args: [name], values: { json, span } }) => {
    const limit = await limitOf(call, name)
    const query = span === undefined ? '' : `?${new URLSearchParams({ span }).toString()}`
    const found = expectStatus<LimitUsage>(await call('GET', `${pathOf(limit)}/usage${query}`), 200)
    if (json) return say(...jsonLines(found))
    const text = (count: number) => amountText(limit.measure, count)
    const rows = found.meters.map((one) => [
      one.principal ?? 'all',
      text(one.used),
      text(one.spent),
      text(one.amount),
    ])
    say(...alignColumns([['WHO', 'USED', 'SPENT', 'OF'], ...rows]))
    if (found.resets_at !== null)
      say(`it ${Date.parse(found.resets_at) < Date.now() ? 'began' : 'begins'} again on ${found.resets_at}`)
  },
})

export const verb = verbGroup({
  name: 'limits',
  about: `Limits calls by cost, tokens, calls and calls at once. ${DOOR_NOTES}`,
  verbs: { list, add, set, override, remove, usage },
  notes: 'A limit holds for the next call, on every gateway. Making and changing them demands admin.grant.',
})
