import { spawn } from 'node:child_process'
import { importPKCS8, SignJWT } from 'jose'
import { isObject } from '../../../db/support/json.ts'
import { hangupFromSignal, OWN_AUTHORITY } from '../../../plugins/call-authority.ts'
import { OWNER_AND_GROUP, readSecretFile } from '../../../plugins/operator-files/secret-file.ts'
import type { CredentialPermit } from '../../../plugins/permit.ts'
import type { LlmProvider } from '../options.ts'
import { discardAnswer, type LlmUpstream, readWholeBody } from '../upstream/answer.ts'
import { timeoutsOf } from '../upstream/provider.ts'
import { type CredentialOptions, isTokenUrl } from './options.ts'

/** Bytes of what a program prints, or a token endpoint answers. */
const MAX_TEXT = 16_384
/** A token whose life nobody states is fetched again after so long. ms. */
const UNSTATED_LIFE_MS = 300_000
/** A file may change at any time: it is read at most so often. ms. */
const FILE_LIFE_MS = 1_000
const GOOGLE_SCOPE = 'https://www.googleapis.com/auth/cloud-platform'
const GOOGLE_TOKEN_URL = 'https://oauth2.googleapis.com/token'

/** A key as its source gave it. */
export interface IssuedKey {
  readonly key: string
  /** The time that it is good for, from its fetch on. ms. */
  readonly lifeMs: number
}

interface KeyRequest {
  readonly provider: LlmProvider
  readonly upstream: LlmUpstream
  readonly signal: AbortSignal
  /** ms since the epoch. */
  readonly at: number
}

/** Fetches a provider's key once. Rejects with a sentence that holds nothing of what the source said. */
export function fetchKey(options: CredentialOptions, request: KeyRequest): Promise<IssuedKey> {
  if (options.kind === 'file') return Promise.resolve().then(() => keyInFile(options.path, request.at))
  if (options.kind === 'exec') return runProgram(options, request)
  if (options.kind === 'google') return askGoogle(options.key_file, request)
  const { client_id, client_secret, scope, token_url: url } = options
  const form = {
    grant_type: 'client_credentials',
    client_id,
    client_secret,
    ...(scope !== undefined && { scope }),
  }
  return askTokenEndpoint(url, form, request)
}

function keyInFile(path: string, at: number): IssuedKey {
  const { key } = keyIn(readSecretFile(path, OWNER_AND_GROUP), at)
  return { key, lifeMs: FILE_LIFE_MS }
}

/** Reads a token, or an object with one and the instant of its end. */
function keyIn(text: string, at: number): IssuedKey {
  const bare = text.trim()
  const stated = bare.startsWith('{') ? parsedObject(bare) : { token: bare }
  const { token, expires_at: end } = stated
  if (typeof token !== 'string' || !KEY.test(token))
    throw new Error('the source of the key gave no token of printable ASCII without spaces')
  if (end === undefined || end === null) return { key: token, lifeMs: UNSTATED_LIFE_MS }
  const endsAt = typeof end === 'number' ? end * 1000 : Date.parse(typeof end === 'string' ? end : '')
  if (!Number.isFinite(endsAt)) throw new Error('the source of the key gave an expires_at that is no time')
  return { key: token, lifeMs: endsAt - at }
}

const KEY = /^[\x21-\x7e]+$/

function parsedObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    if (isObject(value)) return value
  } catch {
    // The parser's message quotes the text.
  }
  throw new Error('the source of the key gave JSON that cannot be read')
}

/** Runs a program without a shell, in a group of its own, which is killed as a whole if it takes too long. */
async function runProgram(
  { command: [program = '', ...args], env: names }: Extract<CredentialOptions, { kind: 'exec' }>,
  { signal, at }: KeyRequest,
): Promise<IssuedKey> {
  const env = Object.fromEntries(names.map((name) => [name, process.env[name]]))
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  // What it says of a failure may hold anything.
  const child = spawn(program, args, { cwd: '/', env, detached: true, stdio: ['ignore', 'pipe', 'ignore'] })
  const kill = (): void => {
    if (child.pid !== undefined) {
      try {
        process.kill(-child.pid, 'SIGKILL')
      } catch {
        // All of it has ended.
      }
    }
    child.stdout.destroy()
  }
  const end = (problem: string): void => {
    reject(new Error(problem))
    kill()
  }
  const stop = (): void => end('the program that gives the key took too long')
  if (signal.aborted) stop()
  signal.addEventListener('abort', stop, { once: true })
  const printed: Buffer[] = []
  let length = 0
  child.stdout.on('data', (piece: Buffer) => {
    length += piece.length
    if (length > MAX_TEXT) end(`the program that gives the key printed more than ${MAX_TEXT} bytes`)
    else printed.push(piece)
  })
  child.on('error', (error) => {
    const code = 'code' in error ? String(error.code) : 'unknown'
    reject(new Error(`the program that gives the key cannot be started (${code})`))
  })
  child.on('close', (code, killed) => {
    if (code === 0) resolve(Buffer.concat(printed).toString())
    else reject(new Error(`the program that gives the key ended with ${code ?? killed}`))
  })
  try {
    return keyIn(await promise, at)
  } finally {
    signal.removeEventListener('abort', stop)
  }
}

async function askGoogle(path: string, request: KeyRequest): Promise<IssuedKey> {
  const account = parsedObject(readSecretFile(path, OWNER_AND_GROUP))
  const { type, client_email: email, private_key: pem, private_key_id: kid } = account
  const url = account.token_uri ?? GOOGLE_TOKEN_URL
  if (type !== 'service_account' || typeof email !== 'string' || typeof pem !== 'string')
    throw new Error('the key file is none of a service account')
  if (typeof url !== 'string' || !isTokenUrl(url)) throw new Error('the key file names no https token_uri')
  const key = await importPKCS8(pem, 'RS256').catch(() => {
    throw new Error('the private key of the service account cannot be read')
  })
  const issuedAt = Math.floor(request.at / 1000)
  const assertion = await new SignJWT({ scope: GOOGLE_SCOPE })
    .setProtectedHeader({ alg: 'RS256', typ: 'JWT', ...(typeof kid === 'string' && { kid }) })
    .setIssuer(email)
    .setAudience(url)
    .setIssuedAt(issuedAt)
    .setExpirationTime(issuedAt + 3600)
    .sign(key)
  const grant_type = 'urn:ietf:params:oauth:grant-type:jwt-bearer'
  return askTokenEndpoint(url, { grant_type, assertion }, request)
}

/** Asks a token endpoint (RFC 6749 §4.4, RFC 7523 §2.1), the way that the provider is reached. */
async function askTokenEndpoint(
  address: string,
  form: Readonly<Record<string, string>>,
  { provider, upstream, signal }: KeyRequest,
): Promise<IssuedKey> {
  const url = new URL(address)
  const body = Buffer.from(new URLSearchParams(form).toString())
  const answer = await upstream
    .call({
      // The one place that makes a CredentialPermit: the key is fetched for all, with the operator's own words.
      permit: { kind: 'credential', authority: OWN_AUTHORITY, provider: provider.name } as CredentialPermit,
      method: 'POST',
      url,
      headers: [
        ...['host', url.host, 'accept', 'application/json', 'accept-encoding', 'identity'],
        ...['content-type', 'application/x-www-form-urlencoded', 'content-length', String(body.length)],
      ],
      body: [body],
      timeouts: timeoutsOf(provider),
      proxy: provider.tunnel,
      hangup: hangupFromSignal(signal),
    })
    .catch(() => {
      const late = signal.aborted ? 'gave no answer in time' : 'could not be reached'
      throw new Error(`the token endpoint ${late}`)
    })
  const { status } = answer
  if (status >= 300 && status < 400) {
    discardAnswer(answer)
    throw new Error(`the token endpoint redirects (${status}), which is not followed`)
  }
  const read = await readWholeBody(answer, MAX_TEXT).catch(() => null)
  const said = read === null ? {} : jsonOf(read)
  const { error } = said
  if (status !== 200) {
    const code = typeof error === 'string' && OAUTH_ERROR.test(error) ? `, ${error}` : ''
    throw new Error(`the token endpoint answered ${status}${code}`)
  }
  const { access_token: key, expires_in: seconds } = said
  if (typeof key !== 'string' || !KEY.test(key)) throw new Error('the token endpoint gave no access_token')
  const life = Number(seconds) * 1000
  return { key, lifeMs: Number.isFinite(life) && life > 0 ? life : UNSTATED_LIFE_MS }
}

/** RFC 6749 §5.2: a word, and nothing that a stranger could have put there. */
const OAUTH_ERROR = /^[a-z_]{1,40}$/

function jsonOf(body: Buffer): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(body.toString())
    return isObject(value) ? value : {}
  } catch {
    // It has no access_token then.
    return {}
  }
}
