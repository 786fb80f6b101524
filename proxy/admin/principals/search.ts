import type { PrincipalRecord } from '../../../db/principals/read.ts'

export interface PrincipalSearch {
  readonly words: readonly string[]
  readonly capability: readonly string[]
  /** ms from now until which the certificate ends. */
  readonly expiresMs: number | null
  /** Unseen for this time up to now. ms. */
  readonly unusedMs: number | null
  /** Refused within this time up to now, or since midnight (UTC). ms. */
  readonly denied: number | 'today' | null
  readonly states: readonly State[]
}

type State = 'active' | 'inactive' | 'empty' | 'keyless'

type ParsedSearch =
  | { readonly ok: true; readonly search: PrincipalSearch }
  | { readonly ok: false; readonly message: string }

const SPAN = /^<?(\d{1,4})([dh])$/
const STATES: readonly string[] = ['active', 'inactive', 'empty', 'keyless']
const DAY_MS = 86_400_000
const UNIT_MS: Readonly<Record<string, number>> = { d: DAY_MS, h: 3_600_000 }

/** Reads words, and `name:value` for anything not in a name. Reports parts that it does not understand. */
export function parseSearch(text: string): ParsedSearch {
  const search = { words: [] as string[], capability: [] as string[], states: [] as State[] }
  const spans: Record<string, number | null> = { expires: null, unused: null, denied: null }
  let isToday = false
  for (const part of text.split(/\s+/).filter((one) => one !== '')) {
    const [, name, value = ''] = /^(cap|expires|unused|denied|is):(.*)$/.exec(part) ?? []
    if (name === undefined) search.words.push(part.toLowerCase())
    else if (name === 'cap') search.capability.push(value)
    else if (name === 'is') {
      if (!STATES.includes(value)) return { ok: false, message: `is: takes ${STATES.join(', ')}` }
      search.states.push(value as State)
    } else if (name === 'denied' && value === 'today') isToday = true
    else {
      const ms = spanOf(value)
      const or = name === 'denied' ? ', or today' : ''
      if (ms === null) return { ok: false, message: `${name}: takes a time, such as 30d or 12h${or}` }
      spans[name] = ms
    }
  }
  const { expires = null, unused = null, denied = null } = spans
  return {
    ok: true,
    search: { ...search, expiresMs: expires, unusedMs: unused, denied: isToday ? 'today' : denied },
  }
}

function spanOf(text: string): number | null {
  const [, count, unit] = SPAN.exec(text) ?? []
  return count === undefined ? null : Number(count) * (UNIT_MS[unit ?? ''] ?? 0)
}

/**
 * The instant since which somebody must have been refused; null: that is not asked for. ms since the epoch.
 */
export function deniedSince({ denied }: PrincipalSearch, at: number): number | null {
  if (denied === null) return null
  return denied === 'today' ? at - (at % DAY_MS) : Math.max(at - denied, 0)
}

/** True if a record fits the search, refusals aside. `at`: ms since the epoch. */
export function matchesSearch(search: PrincipalSearch, record: PrincipalRecord, at: number): boolean {
  const { words, capability, expiresMs, unusedMs, states } = search
  const text = `${record.principal_id} ${record.display_name ?? ''}`.toLowerCase()
  return (
    words.every((word) => text.includes(word)) &&
    capability.every((token) => record.capabilities.includes(token)) &&
    states.every((state) => isIn(state, record)) &&
    (expiresMs === null ||
      (record.cert_not_after !== null && Date.parse(record.cert_not_after) - at < expiresMs)) &&
    (unusedMs === null || record.last_seen_at === null || at - Date.parse(record.last_seen_at) >= unusedMs)
  )
}

function isIn(state: State, { is_active: active, capabilities, dpop_jkt: jkt }: PrincipalRecord): boolean {
  if (state === 'empty') return capabilities.length === 0
  if (state === 'keyless') return jkt === null
  return active === (state === 'active')
}
