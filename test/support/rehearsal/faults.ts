import type { Json } from '../gateway.ts'
import { PARTS, type Part } from './authority.ts'
import type { History, Played, Sent } from './history.ts'
import type { Verdict } from './verdicts.ts'

/** Where what was predicted is not what came, each as a sentence. */
export function faultsOf(drawn: History, { sent, same, lately, predicted }: Played): readonly string[] {
  const since = new Date(lately).toISOString()
  const last = sent.filter(({ recorded }) => recorded.at >= since)
  return [
    ...differences(same, last.length, last.filter(isSummarised).length),
    ...wrong(drawn, sent.filter(concerned(drawn)), predicted),
  ]
}

/** What a rehearsal of so many calls, by which nothing changes, says beside that. `open`: those that it need not decide. */
export function differences(said: Json, calls: number, open = 0): readonly string[] {
  const { window, unchanged, newly_refused: refused, newly_allowed: allowed, totals, disagreements } = said
  const holds =
    window.decisions === calls &&
    unchanged + totals.undecidable === calls &&
    totals.undecidable <= open &&
    refused.length + allowed.length + disagreements === 0
  return holds ? [] : [`what changes nothing, of ${calls} decisions: ${JSON.stringify(said)}`]
}

/** Whether a call is in the window: where all changes are about principals and their bindings, only theirs are. */
function concerned({ changed }: History): (sent: Sent) => boolean {
  const parts = PARTS.filter((_, index) => changed[index])
  const people = parts.flatMap((part) => ('who' in part ? [part.who] : []))
  return people.length < parts.length ? () => true : ({ call }) => people.includes(call.who)
}

const isAllowed = ({ status }: { readonly status: string }): boolean => status === 'allowed'
const isSummarised = ({ id }: Sent): boolean => id === null

function wrong(drawn: History, sent: readonly Sent[], predicted: Json): readonly string[] {
  const refused = sent.filter(({ recorded, again }) => isAllowed(recorded) && !isAllowed(again))
  const allowed = sent.filter(({ recorded, again }) => !isAllowed(recorded) && isAllowed(again))
  const isOpen = (one: Sent): boolean => mayBeOpen(drawn, one)
  const { window, unchanged, totals, disagreements, undecidable } = predicted
  const [open, kept] = [sent.filter(isOpen).length, sent.length - refused.length - allowed.length]
  const all = unchanged + totals.newly_refused + totals.newly_allowed + totals.undecidable
  const fault = (text: string, holds: boolean) => (holds ? [] : [text])
  return [
    ...wrongGroups('refused', predicted.newly_refused, groupsOf(refused, 'again'), isOpen),
    ...wrongGroups('allowed', predicted.newly_allowed, groupsOf(allowed, 'recorded'), isOpen),
    ...fault(`${disagreements} disagreements`, disagreements === 0),
    ...fault(`${window.decisions} decisions of ${sent.length}`, window.decisions === sent.length),
    ...fault(`${unchanged} unchanged of ${kept}`, unchanged <= kept),
    ...fault(`${JSON.stringify(undecidable)} of ${open} that may be`, totals.undecidable <= open),
    ...fault(`${all} calls in all piles, of ${sent.length}`, all === sent.length),
  ]
}

/** Calls that came to be decided otherwise, by the names that a group has. */
type Groups = ReadonlyMap<string, readonly Sent[]>

/** The calls by their groups, with the reason and the capability of one of their verdicts. */
const groupsOf = (calls: readonly Sent[], by: 'recorded' | 'again'): Groups =>
  Map.groupBy(calls, (sent) => nameOf(sent, sent[by]))

const nameOf = (
  { principal, recorded: { action, tool, model } }: Sent,
  { capability, reason }: Verdict,
): string => JSON.stringify([principal, action, tool, model, capability, reason])

/** No call may be in a group that did not come to it, and all must be there but those that may be left open. */
function wrongGroups(
  what: string,
  said: readonly Json[],
  groups: Groups,
  isOpen: (sent: Sent) => boolean,
): readonly string[] {
  const blind = [...groups.values()].flat().filter(isBlind)
  const known = new Map(said.map((group) => [nameOfGroup(group), group]))
  const lacking = [...groups].flatMap(([name, calls]) => {
    const least = calls.filter((one) => !isOpen(one)).length
    const decisions: number = known.get(name)?.decisions ?? 0
    return decisions < least ? [`${decisions} ${what} of ${least}: ${name}`] : []
  })
  const made = [...known].flatMap(([name, group]) => {
    const calls = [...(groups.get(name) ?? []), ...blind.filter((sent) => nameOf(sent, group) === name)]
    return isOf(group, calls) ? [] : [`${group.decisions} ${what}, but ${calls.length} came so: ${name}`]
  })
  return [...lacking, ...made]
}

const nameOfGroup = ({ principal_id, action, tool, model, capability, reason }: Json): string =>
  JSON.stringify([principal_id, action, tool, model, capability, reason])

/** Whether a group can be of these calls, or of some of them. */
function isOf({ decisions, samples, first_at, last_at }: Json, calls: readonly Sent[]): boolean {
  const [ids, times] = [calls.map(({ id }) => id), calls.map(({ recorded }) => recorded.at).toSorted()]
  if (decisions > calls.length || !samples.every((id: string) => ids.includes(id))) return false
  if (decisions < calls.length) return true
  const named = ids.filter((id) => id !== null).length
  return samples.length === Math.min(named, 3) && first_at === times[0] && last_at === times.at(-1)
}

/**
 * A call whose proof nobody had looked at, and that is refused for it now. It may be told that something behind that would
 * refuse it in any case.
 */
const isBlind = ({ recorded, again }: Sent): boolean =>
  recorded.mode === 'off' && isAllowed(recorded) && OF_PROOFS.includes(again.reason)

const OF_PROOFS: readonly (string | null)[] = ['proof_required', 'proof_invalid', 'token_invalid']

/** Whether docs/rehearsal.md#undecidable lets a rehearsal say nothing of a call. */
function mayBeOpen({ changed }: History, sent: Sent): boolean {
  const { call, recorded, again, checked } = sent
  const isChanged = (kind: Part['kind'], ...names: string[]) =>
    PARTS.some((part, index) => part.kind === kind && names.some((name) => name in (changed[index] ?? {})))
  if (isSummarised(sent)) return true
  // What the rule lets through now, a check of the operator's own may refuse.
  const isLetThrough = again.status !== 'denied' || again.reason === 'policy_denied'
  if (!isAllowed(recorded) && isLetThrough && (checked || recorded.action === 'mcp_tools_call')) return true
  if (call.what === 'resource' && (isChanged('bound', 'bound') || isChanged('server', 'enabled'))) return true
  const isOfProofs = recorded.mode === 'off' || OF_PROOFS.includes(recorded.reason)
  return isOfProofs && isChanged('settings', 'egress_dpop_mode', 'no_downgrade')
}

/** What shows a history that came otherwise. */
export function failureOf(drawn: History, { sent, predicted }: Played) {
  const changed = PARTS.flatMap((part, index) => {
    const members = drawn.changed[index]
    return members ? [{ ...part, ...members }] : []
  })
  const { newly_refused, newly_allowed, undecidable } = predicted
  return {
    people: JSON.stringify(drawn.people),
    changed: JSON.stringify(changed),
    piles: JSON.stringify({ newly_refused, newly_allowed, undecidable }),
    sent: sent.map(textOf),
  }
}

const textOf = ({ id, call: { who, what, proof, token }, recorded, again }: Sent): string =>
  `${id ?? 'summarised'} ${who} ${what}, proof ${proof}${token ? ', with its token' : ''}: ` +
  `${verdictText(recorded)}, then ${verdictText(again)}`

const verdictText = ({ status, reason, capability }: Verdict): string =>
  [status, reason, capability].filter((word) => word !== null).join(' ')
