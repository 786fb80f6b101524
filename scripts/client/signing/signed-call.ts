import { Dispatcher } from 'undici'
import { errorEnvelope } from '../envelope.ts'
import { GatewayRefusal } from '../refusal.ts'
import type { LowerCaseHeaders } from './proof.ts'
import { type ReplayableBody, replayableBody } from './replayable.ts'

type DispatchHeaders = Dispatcher.DispatchOptions['headers']
type Value = string | number | readonly string[] | undefined

// The gateway knows its caller by certificate, token and proof. A key that an SDK insists on having goes
// nowhere, unless the gateway says that a provider is called with it.
const REPLACED = new Set(['authorization', 'x-api-key', 'dpop'])
/** The vendor's credentials among them, and the names under which the gateway takes them besides its own. */
const VENDOR_NAMES = new Map([
  ['authorization', 'sallyport-authorization'],
  ['x-api-key', 'sallyport-x-api-key'],
])

interface OwnCredentials {
  readonly headers: Readonly<Record<string, string>>
  readonly vendorKeys: boolean
}

/**
 * Returns the caller's headers without its own credentials, then ours: names and values in turn. Takes every
 * form that an HTTP client hands to undici: an object, names and values in turn, or pairs.
 */
function withCredentials(headers: DispatchHeaders, ours: OwnCredentials): string[] {
  const all = [...pairs(headers)]
  const isOurs = (name: string): boolean => [...VENDOR_NAMES.values()].includes(name)
  const kept = all.filter(([name]) => !REPLACED.has(name.toLowerCase()) && !isOurs(name.toLowerCase()))
  const vendor = ours.vendorKeys
    ? all.flatMap(([name, value]): [string, Value][] => {
        const renamed = VENDOR_NAMES.get(name.toLowerCase())
        return renamed === undefined ? [] : [[renamed, value]]
      })
    : []
  return [...kept, ...vendor, ...Object.entries(ours.headers)].flatMap(([name, value]) =>
    valuesOf(value).flatMap((text) => [name, text]),
  )
}

function* pairs(headers: DispatchHeaders): Generator<readonly [string, Value]> {
  if (headers === null || headers === undefined) return
  if (Array.isArray(headers)) {
    for (let i = 0; i + 1 < headers.length; i += 2) yield [String(headers[i]), headers[i + 1]]
    return
  }
  if (Symbol.iterator in headers && typeof headers[Symbol.iterator] === 'function') {
    yield* headers as Iterable<[string, Value]>
    return
  }
  yield* Object.entries(headers as Record<string, Value>)
}

function valuesOf(value: Value): readonly string[] {
  if (value === undefined) return []
  return typeof value === 'object' ? value : [String(value)]
}

type SignedCallOptions = Dispatcher.DispatchOptions
type SignedCallHandler = Dispatcher.DispatchHandler
type SignedCallController = Dispatcher.DispatchController

/** The credentials of one attempt at a call, and the connections that they are bound to. */
export interface AttemptCredentials {
  readonly headers: Readonly<Record<string, string>>
  /** True: the caller's own vendor key goes with them, to the gateway's provider. */
  readonly vendorKeys: boolean
  readonly dispatch: Dispatcher.Dispatch
  readonly discardToken: () => void
  /** Returns whether the gateway has said another time than the proof was made by. */
  readonly clockMoved: () => boolean
  /** Called with the error that ended the attempt. */
  readonly failed: (error: Error) => void
  /** Must be called once the attempt was dispatched, or will not be. */
  readonly release: () => void
}

export interface CallSigner {
  /** The only origin that is ever sent anything. */
  readonly origin: string
  /** Credentials for one attempt. `path` may have a query. Rejects if no access token is to be had. */
  readonly sign: (method: string, path: string) => Promise<AttemptCredentials>
  /** Keeps nonce and time of an answer; returns false if there was no nonce. */
  readonly learn: (headers: LowerCaseHeaders) => boolean
}

/**
 * An undici dispatcher that signs every attempt again and repeats a call at most once for each of the
 * refusals that a new signature can cure: `use_dpop_nonce` (RFC 9449 §9), `invalid_token`, and
 * `invalid_dpop_proof` if the gateway's clock is another (§11.1). If the token
 * endpoint itself refuses, the call is answered with that refusal, so that an SDK shows its sentence. Throws
 * if a call is for another origin. The connections are the signer's, and so is their end.
 */
export class SignedDispatcher extends Dispatcher {
  readonly #signer: CallSigner

  constructor(signer: CallSigner) {
    super()
    this.#signer = signer
  }

  override dispatch(options: SignedCallOptions, handler: SignedCallHandler): boolean {
    const origin = String(options.origin)
    if (URL.parse(origin)?.origin !== this.#signer.origin) {
      throw new Error(`this identity is for ${this.#signer.origin} only, and the call is for ${origin}`)
    }
    new SignedCall(this.#signer, options, handler).begin()
    return true
  }
}

/**
 * One call in one or more attempts, which look like one to the client: it holds the controller of this call.
 */
class SignedCall implements SignedCallController {
  aborted = false
  paused = false
  reason: Error | null = null
  rawHeaders: NonNullable<SignedCallController['rawHeaders']> | null = null
  rawTrailers: NonNullable<SignedCallController['rawTrailers']> | null = null
  readonly #signer: CallSigner
  readonly #options: SignedCallOptions
  readonly #handler: SignedCallHandler
  readonly #body: ReplayableBody
  readonly #cures = new Set(['use_dpop_nonce', 'invalid_token', 'invalid_dpop_proof'])
  #attempted: SignedCallController | null = null
  #over = false

  constructor(signer: CallSigner, options: SignedCallOptions, handler: SignedCallHandler) {
    this.#signer = signer
    this.#options = options
    this.#handler = handler
    this.#body = replayableBody(options.body)
  }

  begin(): void {
    this.#handler.onRequestStart?.(this, {})
    void this.#attempt()
  }

  abort(reason: Error): void {
    if (this.aborted || this.#over) return
    this.aborted = true
    this.reason = reason
    // Between two attempts, or before the first, there is nothing on the wire to be told.
    if (this.#attempted) this.#attempted.abort(reason)
    else this.#fail(reason)
  }

  pause(): void {
    this.paused = true
    this.#attempted?.pause()
  }

  resume(): void {
    this.paused = false
    this.#attempted?.resume()
  }

  async #attempt(): Promise<void> {
    if (this.#over) return
    try {
      const { method, path, headers } = this.#options
      const credentials = await this.#signer.sign(method, path)
      try {
        if (!this.#over) this.#send(credentials, withCredentials(headers, credentials))
      } finally {
        credentials.release()
      }
    } catch (error) {
      if (error instanceof GatewayRefusal) this.#answer(error)
      else this.#fail(error instanceof Error ? error : new Error(String(error)))
    }
  }

  #send(credentials: AttemptCredentials, headers: string[]): void {
    const attempt = { ...this.#options, headers, body: this.#body.attempt() }
    // Only the type of the body widens: undici takes any iterable of bytes.
    credentials.dispatch(attempt as SignedCallOptions, this.#watch(credentials))
  }

  /** Watches one attempt and passes everything on, but for an answer that is a reason to try again. */
  #watch(credentials: AttemptCredentials): SignedCallHandler {
    let cured = false
    return {
      onRequestStart: (controller) => {
        this.#attempted = controller
      },
      onResponseStarted: () => this.#handler.onResponseStarted?.(),
      onResponseStart: (controller, status, headers, statusText) => {
        this.rawHeaders = controller.rawHeaders ?? null
        if (status >= 200) cured = this.#cure(status, headers, credentials)
        if (!cured) this.#handler.onResponseStart?.(this, status, headers, statusText)
      },
      onResponseData: (_controller, chunk) => {
        if (!cured) this.#handler.onResponseData?.(this, chunk)
      },
      onResponseEnd: (controller, trailers) => {
        if (cured) return this.#again()
        this.rawTrailers = controller.rawTrailers ?? null
        this.#end(() => this.#handler.onResponseEnd?.(this, trailers))
      },
      onResponseError: (_controller, error) => {
        credentials.failed(error)
        // The refusal stands, however its connection ended: the gateway may not have read all of the body.
        if (cured && !this.aborted) this.#again()
        else this.#fail(error)
      },
    }
  }

  #cure(status: number, headers: LowerCaseHeaders, credentials: AttemptCredentials): boolean {
    const hasNonce = this.#signer.learn(headers)
    if (status !== 401 || !this.#body.canReplay()) return false
    const error = challengeOf(headers)
    if (error === 'use_dpop_nonce' && !hasNonce) return false
    if (error === 'invalid_dpop_proof' && !credentials.clockMoved()) return false
    if (!this.#cures.delete(error)) return false
    if (error === 'invalid_token') credentials.discardToken()
    return true
  }

  #again(): void {
    this.#attempted = null
    void this.#attempt()
  }

  #answer({ status: said, reason, message, final, requestId }: GatewayRefusal): void {
    // The token endpoint's 400 is about its own request: to this one it says that nobody could be
    // authenticated.
    const status = said === 400 ? 401 : said
    const { headers, body } = errorEnvelope({ status, reason, message, final, requestId })
    this.rawHeaders = headers
    this.rawTrailers = {}
    this.#end(() => {
      this.#handler.onResponseStart?.(this, status, headers, '')
      this.#handler.onResponseData?.(this, Buffer.from(body))
      this.#handler.onResponseEnd?.(this, {})
    })
  }

  #fail(error: Error): void {
    this.#end(() => this.#handler.onResponseError?.(this, error))
  }

  #end(tell: () => void): void {
    if (this.#over) return
    this.#over = true
    this.#body.close()
    tell()
  }
}

/** Returns the error of a DPoP challenge (RFC 9449 §7.1); empty if there is none. */
function challengeOf(headers: LowerCaseHeaders): string {
  const challenges = [headers['www-authenticate'] ?? []].flat().join(', ')
  return /\bDPoP\b.*?\berror="([a-z_]+)"/i.exec(challenges)?.[1] ?? ''
}
