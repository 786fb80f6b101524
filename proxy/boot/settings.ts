import { isIP } from 'node:net'
import { join, relative, resolve } from 'node:path'
import { type DatabaseLocation, databaseLocation, NO_DATABASE_URL } from '../../db/engine.ts'
import { messageOf } from '../../db/support/error-message.ts'
import type { DpopMode } from '../../plugins/dpop/dpop.ts'
import { DPOP_MODES } from '../../plugins/dpop/modes.ts'
import type { EnvironmentVariables } from '../../plugins/operator-files/expand.ts'
import { joinWithOr, shownValue } from '../../plugins/operator-files/explain-issue.ts'
import { nearestName } from '../../plugins/operator-files/nearest-name.ts'
import { OWNER_AND_GROUP, readSecretFile } from '../../plugins/operator-files/secret-file.ts'
import { isGuardedUrl, parseNetwork } from './networks.ts'
import { PEOPLE_VARIABLES, type PeopleDoor, peopleDoor } from './people-settings.ts'

/** An address to listen on. An IPv6 host stands without its brackets; port 0 picks one. */
export interface ListenAddress {
  readonly host: string
  readonly port: number
}

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const

/** A setting that cannot be obeyed: the message is one sentence for the operator and holds no secret. */
export class SettingsError extends Error {
  override readonly name = 'SettingsError'
}

/** Settings that may come from a file. The URL of a database may hold a password. */
const SECRETS: readonly string[] = [
  'MCP_PROXY_ADMIN_SECRET',
  'MCP_PROXY_KEY_PASSPHRASE',
  'MCP_PROXY_METRICS_TOKEN',
  'MCP_PROXY_DATABASE_URL',
]

const VARIABLES: readonly string[] = [
  'MCP_PROXY_LISTEN',
  'MCP_PROXY_ADMIN_LISTEN',
  'MCP_PROXY_ADMIN_ORIGINS',
  'MCP_PROXY_PROXY_PROTOCOL',
  'MCP_PROXY_REUSE_PORT',
  'MCP_PROXY_HOSTNAMES',
  'MCP_PROXY_PUBLIC_URLS',
  'MCP_PROXY_DATA_DIR',
  'MCP_PROXY_SECRETS_DIR',
  'MCP_PROXY_ORG',
  'MCP_PROXY_TRUST_DOMAIN',
  'MCP_PROXY_EGRESS_DPOP_MODE',
  'MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS',
  'MCP_PROXY_ALLOW_NETWORK_DISK',
  'MCP_PROXY_DISK_RESERVE_MIB',
  'MCP_PROXY_FEDERATION_URL',
  'MCP_PROXY_PLUGINS_DIR',
  'MCP_PROXY_LOG_LEVEL',
  'MCP_PROXY_SHUTDOWN_GRACE_S',
  'MCP_PROXY_DRAIN_DELAY_MS',
  'MCP_PROXY_TLS_MIN_VERSION',
  'MCP_PROXY_TLS_DIRECT',
  'MCP_PROXY_HELD_MIB',
  'MCP_PROXY_HELD_PER_PRINCIPAL_MIB',
  ...PEOPLE_VARIABLES,
  ...SECRETS,
  ...SECRETS.map((name) => `${name}_FILE`),
]

/**
 * Reads every `MCP_PROXY_*` variable. A variable that is set to nothing counts as unset, except the DPoP
 * mode: an empty one is a template that failed, and must not fall back to something weaker. Throws a {@link
 * SettingsError} at the first that cannot be obeyed, also at one that is not known. Reads no file but those
 * of `…_FILE`, which their group may read and nobody else. Relative paths start at `cwd`. Does NOT check that
 * directories exist or that addresses can be bound.
 */
export function readSettings(env: EnvironmentVariables, cwd: string) {
  refuseUnknown(env)
  const listen = address('MCP_PROXY_LISTEN', env.MCP_PROXY_LISTEN || '127.0.0.1:9443')
  const dataDir = resolve(cwd, env.MCP_PROXY_DATA_DIR || 'data')
  const database = databaseUrl(
    secret(env, 'MCP_PROXY_DATABASE_URL', cwd) ?? `sqlite:${resolve(dataDir, 'sallyport.db')}`,
    cwd,
  )
  const adminListen = adminAddress(env, listen)
  return {
    listen,
    /** Null: the admin API shares the runtime listener. */
    adminListen,
    /** The second listener, for people without a certificate. Null: it is closed. */
    people: peopleListener(env, cwd, [listen, adminListen]),
    /** Origins that browsers may have the pages of administration from, beside the base URLs. */
    adminOrigins: list(env, 'MCP_PROXY_ADMIN_ORIGINS', adminOrigin) ?? [],
    /** Networks whose hosts must, and alone may, speak the PROXY protocol. Null: nobody. */
    balancers: list(env, 'MCP_PROXY_PROXY_PROTOCOL', network),
    /** True: other gateways of the same user may listen at the same addresses (docs/deploying.md#one-port). */
    reusePort: reusePort(env, database, listen, adminListen),
    /** SANs of the server certificate: DNS names and IP addresses. */
    hostnames: list(env, 'MCP_PROXY_HOSTNAMES', hostname) ?? ['localhost', '127.0.0.1', '::1'],
    /** Base URLs without a trailing slash. Null: derived from hostnames and port once the port is known. */
    publicUrls: list(env, 'MCP_PROXY_PUBLIC_URLS', publicUrl),
    dataDir,
    /** The one place of files whose contents may be sent to MCP servers as their secrets. */
    secretsDir: secretsDir(env.MCP_PROXY_SECRETS_DIR, dataDir, cwd),
    /** `sqlite:` and an absolute path, or `postgres://…`. */
    databaseUrl: database,
    /** From the environment, or the default of the first boot. */
    org: organisation(env),
    trustDomain: readMatching(env, 'MCP_PROXY_TRUST_DOMAIN', 'sallyport.local', TRUST_DOMAIN_PATTERN),
    /**
     * Which of the two the environment names: the other may be named in the browser (docs/dashboard.md#setup).
     */
    named: { org: Boolean(env.MCP_PROXY_ORG), trustDomain: Boolean(env.MCP_PROXY_TRUST_DOMAIN) },
    adminSecret: secret(env, 'MCP_PROXY_ADMIN_SECRET', cwd),
    keyPassphrase: secret(env, 'MCP_PROXY_KEY_PASSPHRASE', cwd),
    /** The token that only reads `/metrics`. Null: only operators may. */
    metricsToken: metricsToken(env, cwd),
    /** Null: the mode of the dpop plugin's file counts. */
    egressDpopMode: dpopMode(env),
    allowPrivateUpstreams: choice(env, 'MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS', ['false', 'true']) === 'true',
    /** True: the SQLite file may lie on a network file system. */
    allowNetworkDisk: choice(env, 'MCP_PROXY_ALLOW_NETWORK_DISK', ['false', 'true']) === 'true',
    /** The free bytes that are kept for allowed calls. Null: by the size of the file system. */
    diskReserveBytes: env.MCP_PROXY_DISK_RESERVE_MIB
      ? (wholeNumber(env, 'MCP_PROXY_DISK_RESERVE_MIB', 999_999_999) ?? 0) * 1_048_576
      : null,
    /**
     * The URL that changed federated agents are pushed to (spec §3): https, or http to this machine. Null: none
     * is pushed.
     */
    federationUrl: federationUrl(env.MCP_PROXY_FEDERATION_URL),
    pluginsDir: resolve(cwd, env.MCP_PROXY_PLUGINS_DIR || 'plugins/config'),
    logLevel: choice(env, 'MCP_PROXY_LOG_LEVEL', LOG_LEVELS) ?? 'info',
    shutdownGraceS: wholeNumber(env, 'MCP_PROXY_SHUTDOWN_GRACE_S', 3600) ?? 30,
    /** The time after SIGTERM in which `/ready` is 503 and calls are still taken. */
    drainDelayMs: wholeNumber(env, 'MCP_PROXY_DRAIN_DELAY_MS', 600_000) ?? 0,
    tlsMinVersion: `TLSv${choice(env, 'MCP_PROXY_TLS_MIN_VERSION', ['1.3', '1.2']) ?? '1.3'}` as const,
    /** False: TLS writes through a stream, not to the socket itself. */
    tlsDirect: choice(env, 'MCP_PROXY_TLS_DIRECT', ['true', 'false']) !== 'false',
    /**
     * The bytes that bodies and answers may hold at once, in MiB. Null: by the memory there is. A caller may
     * hold no more than it leaves free, and the longest body, of 32 MiB, must fit.
     */
    heldMib: wholeNumber(env, 'MCP_PROXY_HELD_MIB', 1_048_576, 64),
    /** One principal's part, in MiB. Null: half of them. */
    heldPerPrincipalMib: wholeNumber(env, 'MCP_PROXY_HELD_PER_PRINCIPAL_MIB', 1_048_576, 32),
  }
}

/** The settings of the environment (docs/protocol.md#settings), defaults filled in, paths absolute. */
export type Settings = Readonly<ReturnType<typeof readSettings>>

function mustBe(name: string, what: string, got: string): SettingsError {
  return new SettingsError(`${name} must be ${what}, got ${shownValue(got)}`)
}

/** Settings of earlier versions, and their replacements. */
const REMOVED: Readonly<Record<string, string>> = {
  MCP_PROXY_WORKERS:
    'remove it, and for more than one process start several gateways on PostgreSQL with MCP_PROXY_REUSE_PORT=true',
}

function refuseUnknown(env: EnvironmentVariables): void {
  for (const name of Object.keys(env)) {
    if (!name.startsWith('MCP_PROXY_') || VARIABLES.includes(name)) continue
    const instead = REMOVED[name]
    if (instead !== undefined) throw new SettingsError(`${name} is no longer a setting: ${instead}`)
    throw new SettingsError(`${name} is not a setting: did you mean ${nearestName(name, VARIABLES)}?`)
  }
}

function address(name: string, text: string): ListenAddress {
  const found = /^(?:\[([0-9a-fA-F:.]+)\]|([a-zA-Z0-9.-]+)):(\d{1,5})$/.exec(text)
  const [, v6, host = v6, digits] = found ?? []
  const port = Number(digits)
  if (host === undefined || (v6 !== undefined && isIP(v6) !== 6) || !(port <= 65_535)) {
    throw mustBe(name, 'host:port, such as 127.0.0.1:9443 or [::1]:9443', text)
  }
  return { host, port }
}

function adminAddress(env: EnvironmentVariables, listen: ListenAddress): ListenAddress | null {
  if (!env.MCP_PROXY_ADMIN_LISTEN) return null
  const admin = address('MCP_PROXY_ADMIN_LISTEN', env.MCP_PROXY_ADMIN_LISTEN)
  if (admin.port !== 0 && admin.port === listen.port && admin.host === listen.host) {
    throw new SettingsError(
      'MCP_PROXY_ADMIN_LISTEN is the same address as MCP_PROXY_LISTEN: leave it empty to share one listener',
    )
  }
  return admin
}

function peopleListener(
  env: EnvironmentVariables,
  cwd: string,
  others: readonly (ListenAddress | null)[],
): PeopleDoor<ListenAddress> | null {
  const fault = (message: string): Error => new SettingsError(message)
  const people = peopleDoor(env, { address, fault, cwd })
  const port = people?.listen.port
  if (port && others.some((other) => other?.port === port))
    throw fault('MCP_PROXY_PEOPLE_LISTEN needs a port of its own: another listener has this one')
  return people
}

function reusePort(
  env: EnvironmentVariables,
  databaseUrl: string,
  { port }: ListenAddress,
  admin: ListenAddress | null,
): boolean {
  if (choice(env, 'MCP_PROXY_REUSE_PORT', ['false', 'true']) !== 'true') return false
  if (databaseUrl.startsWith('sqlite:'))
    throw new SettingsError(
      'MCP_PROXY_REUSE_PORT=true needs PostgreSQL (MCP_PROXY_DATABASE_URL): a SQLite database has one gateway',
    )
  // The system would spread connections between the two listeners, by whatever names their hosts go.
  if (admin !== null && admin.port === port)
    throw new SettingsError(
      'MCP_PROXY_REUSE_PORT=true needs different ports in MCP_PROXY_LISTEN and MCP_PROXY_ADMIN_LISTEN',
    )
  if (port === 0)
    throw new SettingsError(
      'MCP_PROXY_REUSE_PORT=true needs a port in MCP_PROXY_LISTEN: with port 0 each gateway picks its own',
    )
  return true
}

/** Reads a comma-separated list: spaces around an entry dropped, each entry once. Null if unset. */
function list(
  env: EnvironmentVariables,
  name: string,
  read: (name: string, entry: string) => string,
): readonly string[] | null {
  const text = env[name]
  if (!text) return null
  return [...new Set(text.split(',').map((entry) => read(name, entry.trim())))]
}

function network(name: string, entry: string): string {
  const read = parseNetwork(entry)
  if (read !== null) return read
  throw mustBe(name, 'addresses and networks such as 10.0.0.4 or 10.1.0.0/16, separated by commas', entry)
}

const HOSTNAME = /^(?=.{1,253}$)[a-zA-Z0-9]([a-zA-Z0-9-]{0,62})(\.[a-zA-Z0-9][a-zA-Z0-9-]{0,62})*$/

function hostname(name: string, entry: string): string {
  if (isIP(entry) !== 0 || (HOSTNAME.test(entry) && !/^[\d.]+$/.test(entry))) return entry
  throw mustBe(name, 'host names and IP addresses, separated by commas', entry)
}

function publicUrl(name: string, entry: string): string {
  const url = URL.parse(entry)
  // The text between :// and the path is not printed: it may hold a password.
  if (url?.username || url?.password)
    throw new SettingsError(`${name} must not contain a user name or password`)
  if (url?.protocol !== 'https:' || /[?#]/.test(entry)) {
    throw mustBe(name, 'https URLs without query, separated by commas', entry)
  }
  return url.href.replace(/\/+$/, '')
}

function adminOrigin(name: string, entry: string): string {
  const url = URL.parse(entry)
  if (url?.origin === entry && !entry.includes('*') && isGuardedUrl(url)) return entry
  throw mustBe(
    name,
    'origins as browsers write them, https or http of this machine, separated by commas, such as https://localhost:9444',
    // What stands before an @ may be a password.
    entry.replace(/.*@/, '…@'),
  )
}

function federationUrl(text: string | undefined): string | null {
  if (!text) return null
  const url = URL.parse(text)
  const named = url && url.username === '' && url.password === '' && !text.includes('#')
  if (named && isGuardedUrl(url)) return url.href
  // Not printed: it may hold a password, or a token in its query.
  throw new SettingsError(
    'MCP_PROXY_FEDERATION_URL must be an https URL, or an http URL of this machine, without user name, password or fragment',
  )
}

function secretsDir(text: string | undefined, dataDir: string, cwd: string): string {
  const usual = join(dataDir, 'mcp-secrets')
  const directory = resolve(cwd, text || usual)
  const apart = !isWithin(dataDir, directory) && !isWithin(directory, dataDir)
  if (directory === usual || (apart && !/^\/(proc|sys|dev)(\/|$)/.test(directory))) return directory
  throw new SettingsError(
    'MCP_PROXY_SECRETS_DIR must be a directory of its own, apart from the data directory: each file in it may be sent to MCP servers',
  )
}

/** Returns whether a path is a directory or below it. Compares text. */
export const isWithin = (path: string, directory: string): boolean =>
  !/^\.\.(\/|$)/.test(relative(directory, path))

function databaseUrl(text: string, cwd: string): string {
  const location = databaseAt(text)
  if (location.engine === 'postgres') return location.url
  const { engine, file } = location
  // A database in memory is gone after a stop; a second slash would be a host.
  if (file === ':memory:' || /^\/\/[^/]/.test(file)) throw new SettingsError(NO_DATABASE_URL)
  return `${engine}:${resolve(cwd, file)}`
}

function databaseAt(text: string): DatabaseLocation {
  try {
    return databaseLocation(text)
  } catch (error) {
    throw new SettingsError(messageOf(error), { cause: error })
  }
}

/** 53: the CA's common name, of 64 characters (X.520), must also hold ` Issuing CA`. */
export const ORGANISATION_PATTERN = /^[a-zA-Z0-9._-]{1,53}$/
/** Part of a SPIFFE id. */
export const TRUST_DOMAIN_PATTERN = /^[a-z0-9._-]{1,255}$/
/** A path library of another hop would resolve these to somebody else's name. */
export const DOT_SEGMENTS = /^\.{1,2}$/

function organisation(env: EnvironmentVariables): string {
  const name = readMatching(env, 'MCP_PROXY_ORG', 'acme', ORGANISATION_PATTERN)
  if (!DOT_SEGMENTS.test(name)) return name
  throw new SettingsError('MCP_PROXY_ORG must not be . or ..: it is a part of each SPIFFE id')
}

function readMatching(env: EnvironmentVariables, name: string, fallback: string, pattern: RegExp): string {
  const value = env[name] || fallback
  if (!pattern.test(value)) throw mustBe(name, `made of the characters ${pattern.source}`, value)
  return value
}

function secret(env: EnvironmentVariables, name: string, cwd: string): string | null {
  const file = env[`${name}_FILE`]
  if (!file) return env[name] || null
  if (env[name]) throw new SettingsError(`${name} and ${name}_FILE are both set: keep one`)
  const value = secretIn(resolve(cwd, file), name)
  if (value === '') throw new SettingsError(`${name}_FILE: ${file} is empty`)
  return value
}

function secretIn(file: string, name: string): string {
  try {
    return readSecretFile(file, OWNER_AND_GROUP)
  } catch (error) {
    throw new SettingsError(`${name}_FILE: ${error instanceof Error ? error.message : file}`, {
      cause: error,
    })
  }
}

/** No guess is counted against a token, so it must be too long to be guessed. */
const METRICS_TOKEN = /^[\w.~+/-]{24,256}=*$/

function metricsToken(env: EnvironmentVariables, cwd: string): string | null {
  const token = secret(env, 'MCP_PROXY_METRICS_TOKEN', cwd)
  if (token === null || METRICS_TOKEN.test(token)) return token
  // Not printed: it is a secret.
  throw new SettingsError(
    'MCP_PROXY_METRICS_TOKEN must be 24 to 256 characters of a bearer token, such as openssl rand -hex 32 prints',
  )
}

function choice<Word extends string>(
  env: EnvironmentVariables,
  name: string,
  words: readonly Word[],
): Word | null {
  const text = env[name]
  if (!text) return null
  const found = words.find((word) => word === text)
  if (found === undefined) throw mustBe(name, joinWithOr(words), text)
  return found
}

function dpopMode(env: EnvironmentVariables): DpopMode | null {
  if (env.MCP_PROXY_EGRESS_DPOP_MODE === '')
    throw mustBe('MCP_PROXY_EGRESS_DPOP_MODE', joinWithOr(DPOP_MODES), '')
  return choice(env, 'MCP_PROXY_EGRESS_DPOP_MODE', DPOP_MODES)
}

function wholeNumber(env: EnvironmentVariables, name: string, most: number, least = 0): number | null {
  const text = env[name]
  if (!text) return null
  const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN
  if (value >= least && value <= most) return value
  throw mustBe(name, `a whole number from ${least} to ${most}`, text)
}
