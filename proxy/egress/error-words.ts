import { isObject, type UnknownRecord } from '../../db/support/json.ts'
import type { ProviderErrorFields } from '../../plugins/refusal.ts'

/** Words for the settings that a cure names, which differ between MCP servers and providers. */
interface ConnectionSettings {
  readonly url: string
  /** The advice for a server that demands a client certificate. */
  readonly certificate: string
}

/** The causes of a connection that cannot be made, by Node's or OpenSSL's code, each with what to do. */
const CONNECTION_CAUSES: readonly (readonly [RegExp, string])[] = [
  [/^ECONNREFUSED$/, 'nothing listens at its host and port: start the server, or correct SETTING_URL'],
  [/^ENOTFOUND$/, 'its host name has no address: correct SETTING_URL, or the name in DNS'],
  [/^EAI_AGAIN$|^ETIMEOUT$/, 'its host name could not be looked up: the name server does not answer'],
  [/^ESERVFAIL$|^EREFUSED$/, 'its host name could not be looked up: the name server fails, or refuses to'],
  [/^E(?:HOST|NET)UNREACH$/, 'no route leads to its address'],
  [/^UND_ERR_CONNECT_TIMEOUT$|^ETIMEDOUT$/, 'no connection in time: look for a firewall on the way'],
  [
    /SELF_SIGNED_CERT|^UNABLE_TO_(?:VERIFY|GET)/,
    'its certificate is of a CA that is not known here: name that CA in NODE_EXTRA_CA_CERTS',
  ],
  [/^CERT_HAS_EXPIRED$/, 'its certificate has ended: renew it there'],
  [/^CERT_NOT_YET_VALID$/, 'its certificate is not valid yet: compare the clocks'],
  [
    /^ERR_TLS_CERT_ALTNAME_INVALID$/,
    'its certificate is for another name: correct the host in SETTING_URL, or the certificate',
  ],
  [
    /WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST/,
    'it does not speak TLS there: write http:// in SETTING_URL, or the port of its TLS',
  ],
  [/PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL/, 'it speaks no TLS that is new enough: it needs 1.2 or 1.3'],
  [/_ALERT_/, 'it refuses the TLS handshake: CERTIFICATE'],
]

/** Says why a connection could not be made, or broke, and what to do; null for a code that says it itself. */
export function connectionCause(code: string, { url, certificate }: ConnectionSettings): string | null {
  const [, cause] = CONNECTION_CAUSES.find(([codes]) => codes.test(code)) ?? []
  return cause?.replace('SETTING_URL', url).replace('CERTIFICATE', certificate) ?? null
}

/** Characters: of the sentence, and of each name. */
const MAX_MESSAGE = 4_096
const MAX_NAME = 256

export interface ErrorWords extends ProviderErrorFields {
  readonly message: string
}

/** Reads an upstream's words about its failure, in the form of either vendor's error or of its imitators. */
export function parseErrorWords(body: unknown): ErrorWords | null {
  const said = statedError(body)
  const message = said === null ? '' : errorSentence(said)
  if (said === null || message === '') return null
  const names = Object.entries({ type: said.type, code: said.code, param: said.param }).flatMap(
    ([name, value]) => (isName(value) ? [[name, String(value).toWellFormed()]] : []),
  )
  return { ...Object.fromEntries(names), message: message.slice(0, MAX_MESSAGE).toWellFormed() }
}

/** Returns the error that a body states, in the form of either vendor or of an imitator; null if it is none. */
export function statedError(body: unknown): UnknownRecord | null {
  // Google sends a list of one.
  const stated: unknown = Array.isArray(body) ? body[0] : body
  if (!isObject(stated)) return null
  return isObject(stated.error) ? stated.error : stated
}

/** Returns the sentence of an error that {@link statedError} found; empty if it has none. */
export const errorSentence = ({ message, error, detail }: UnknownRecord): string =>
  [message, error, detail].find((text): text is string => typeof text === 'string' && text !== '') ?? ''

const isName = (value: unknown): boolean =>
  typeof value === 'number' || (typeof value === 'string' && value !== '' && value.length <= MAX_NAME)
