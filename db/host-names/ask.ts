import { lookup, Resolver } from 'node:dns/promises'
import { HostNameError } from './host-name-error.ts'
import { type HostAddress, machineAddresses, reachableFirst, searchedHostNames } from './machine-names.ts'

export interface ResolvedAddresses {
  /** At least one, the one to try first before the others. */
  readonly addresses: readonly HostAddress[]
  /** The time for which it may be believed. s. */
  readonly ttlS: number
}

export interface HostLookupOptions {
  readonly servers?: readonly string[] | undefined
  readonly signal: AbortSignal
}

/** The time that one name server has before the next is asked, and at most. ms. */
const [TRY_MS, MAX_TRY_MS] = [1_000, 2_000]
const TRIES = 2
/** The time that the addresses of one family wait for those of the other. ms. */
const OTHER_FAMILY_MS = 250

/**
 * Asks name servers for exactly this name, by c-ares: no hosts file, no search list, no thread of Node's
 * pool. Rejects with {@link HostNameError}, or the signal's reason. Each look-up has sockets, and so ports,
 * of its own.
 */
export async function askNameServers(
  host: string,
  { servers, signal }: HostLookupOptions,
): Promise<ResolvedAddresses> {
  signal.throwIfAborted()
  const resolver = new Resolver({ timeout: TRY_MS, tries: TRIES, maxTimeout: MAX_TRY_MS })
  if (servers) resolver.setServers(servers)
  const cancel = (): void => resolver.cancel()
  signal.addEventListener('abort', cancel, { once: true })
  let waits: NodeJS.Timeout | undefined
  const found = (family: 4 | 6, records: readonly { address: string; ttl: number }[]) => {
    waits ??= setTimeout(cancel, OTHER_FAMILY_MS)
    return records.map(({ address, ttl }) => ({ address, family, ttl }))
  }
  const answers = await Promise.allSettled([
    resolver.resolve4(host, { ttl: true }).then((records) => found(4, records)),
    resolver.resolve6(host, { ttl: true }).then((records) => found(6, records)),
  ])
  clearTimeout(waits)
  signal.removeEventListener('abort', cancel)
  signal.throwIfAborted()
  const records = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []))
  if (records.length === 0) throw failureOf(host, answers)
  return {
    addresses: reachableFirst(records.map(({ address, family }) => ({ address, family }))),
    ttlS: Math.min(...records.map(({ ttl }) => ttl)),
  }
}

const DENIALS: ReadonlySet<string> = new Set(['ENOTFOUND', 'ENODATA'])

function failureOf(host: string, answers: readonly PromiseSettledResult<unknown>[]): HostNameError {
  const codes = answers.flatMap((answer) => (answer.status === 'rejected' ? [codeOf(answer.reason)] : []))
  return new HostNameError(host, codes.find((code) => !DENIALS.has(code)) ?? 'ENOTFOUND')
}

const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error ? String(error.code) : 'EUNKNOWN'

/**
 * Looks a name up in the hosts file, then with {@link askNameServers} over the search list; if these deny it,
 * asks the system, which may know more (mDNS, LDAP). Rejects as {@link askNameServers} does.
 */
export async function lookUpHost(host: string, options: HostLookupOptions): Promise<ResolvedAddresses> {
  const known = await machineAddresses(host)
  if (known.length > 0) return { addresses: known, ttlS: 0 }
  let unsure: HostNameError | null = null
  for (const name of await searchedHostNames(host)) {
    try {
      return await askNameServers(name, options)
    } catch (error) {
      if (!(error instanceof HostNameError)) throw error
      // A server silent about one name would be silent about the next.
      if (error.code === 'ETIMEOUT') throw new HostNameError(host, error.code)
      if (!error.denied) unsure = new HostNameError(host, error.code)
    }
  }
  if (unsure) throw unsure
  return { addresses: await askSystem(host, options.signal), ttlS: 0 }
}

let lookupQueue: Promise<unknown> = Promise.resolve()

/**
 * Looks a name up on a thread of Node's pool, which cannot be called off: one name at a time in the process,
 * so that it takes one of the two threads that look-ups have.
 */
function askSystem(host: string, signal: AbortSignal): Promise<readonly HostAddress[]> {
  const asked = lookupQueue.then(async () => {
    signal.throwIfAborted()
    try {
      const found = await lookup(host, { all: true, order: 'verbatim' })
      return found.map(({ address, family }): HostAddress => ({ address, family: family === 6 ? 6 : 4 }))
    } catch (error) {
      throw new HostNameError(host, codeOf(error))
    }
  })
  lookupQueue = asked.catch(() => undefined)
  return asked
}
