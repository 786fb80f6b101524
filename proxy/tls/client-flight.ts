import { isCheapToVerify } from '../../certs/x509/key-cost.ts'
import { RECORD_HEADER, type RecordContent, type RecordReader } from './record-reader.ts'

/** The most a client may send until its certificates are whole. Bytes. Honest ones send up to 8 KiB. */
const MAX_FLIGHT = 16_384
/** The most of a chain that is enrolled, and one to spare. */
const MAX_CERTIFICATES = 10

/** RFC 8446 §5.1, `ContentType`. */
const HANDSHAKE = 22
const PROTECTED = 23
/** RFC 8446 §4, `HandshakeType`. */
const CLIENT_HELLO = 1
const CERTIFICATE = 11
const CLIENT_KEY_EXCHANGE = 16
const FINISHED = 20
/** Type and length before a handshake message. Bytes. */
const MESSAGE_HEADER = 4

const NOTHING = Buffer.alloc(0)

/** Why a handshake is ended before OpenSSL has seen its certificates. Also the label of a metric. */
export type FlightFault = 'flight_too_long' | 'too_many_certificates' | 'costly_certificate' | 'malformed'

export class FlightError extends Error {
  readonly fault: FlightFault

  constructor(fault: FlightFault) {
    super(`the client's handshake was ended: ${fault}`)
    this.fault = fault
  }
}

/**
 * Stands between a client and TLS until its Certificate message has been checked (docs/threats.md#a1):
 * OpenSSL takes half a second of the loop to verify a chain of keys made for it. A message that it must not
 * see ends the handshake.
 */
export class ClientFlight {
  readonly #reader: () => RecordReader | null
  readonly #isAsked: boolean
  #partial: Buffer = NOTHING
  /** Whole records from the one on in which the Certificate message begins. */
  #held: Buffer[] = []
  #message: Buffer = NOTHING
  #length = 0
  #done = false

  /**
   * `reader`: of the client's protected records; null before TLS 1.3 has agreed on keys, and in TLS 1.2.
   * `isAsked`: whether the client is asked for certificates.
   */
  constructor(reader: () => RecordReader | null, isAsked = true) {
    this.#reader = reader
    this.#isAsked = isAsked
  }

  /** True once the certificates were looked at: from then on everything passes as it comes. */
  get done(): boolean {
    return this.#done
  }

  /**
   * Takes bytes of the client. Returns those that TLS may read now: whole records, and none of a Certificate
   * message that is not whole. Throws a {@link FlightError} for bytes that no honest client sends.
   */
  add(piece: Buffer): Buffer {
    const bytes = this.#partial.length === 0 ? piece : Buffer.concat([this.#partial, piece])
    const passed: Buffer[] = []
    let at = 0
    while (!this.#done && bytes.length - at >= RECORD_HEADER) {
      const end = at + RECORD_HEADER + bytes.readUInt16BE(at + 3)
      if (this.#length + end - at > MAX_FLIGHT) throw new FlightError('flight_too_long')
      if (end > bytes.length) break
      const record = bytes.subarray(at, end)
      this.#length += record.length
      this.#held.push(record)
      this.#look(record)
      if (this.#message.length === 0 || this.#done) passed.push(...this.#held.splice(0))
      at = end
    }
    // A copy: the waiting part must not keep the whole piece alive.
    this.#partial = this.#done ? NOTHING : Buffer.from(bytes.subarray(at))
    if (this.#done) passed.push(bytes.subarray(at))
    return passed.length === 1 ? (passed[0] ?? NOTHING) : Buffer.concat(passed)
  }

  #look(record: Buffer): void {
    const content = this.#contentOf(record)
    if (content?.type !== HANDSHAKE) return
    const isProtected = record[0] === PROTECTED
    let bytes = this.#message.length === 0 ? content.bytes : Buffer.concat([this.#message, content.bytes])
    while (bytes.length >= MESSAGE_HEADER) {
      const end = MESSAGE_HEADER + bytes.readUIntBE(1, 3)
      const [type] = bytes
      // The first that follows a hello: its certificates, if it has been asked for them.
      if (!this.#isAsked && (type === CLIENT_KEY_EXCHANGE || type === FINISHED)) {
        this.#done = true
        return
      }
      if (type !== CLIENT_HELLO && (type !== CERTIFICATE || !this.#isAsked))
        throw new FlightError('malformed')
      if (bytes.length < end) break
      if (type === CERTIFICATE) {
        judge(certificatesOf(bytes.subarray(MESSAGE_HEADER, end), isProtected))
        this.#done = true
        return
      }
      bytes = bytes.subarray(end)
    }
    this.#message = bytes
  }

  #contentOf(record: Buffer): RecordContent | null {
    const [type = 0] = record
    if (type !== PROTECTED) return { type, bytes: record.subarray(RECORD_HEADER) }
    // Before keys are agreed on there is nothing to protect: no early data is ever offered.
    const content = this.#reader()?.open(record)
    if (!content) throw new FlightError('malformed')
    return content
  }
}

function judge(certificates: readonly Buffer[]): void {
  if (certificates.length > MAX_CERTIFICATES) throw new FlightError('too_many_certificates')
  if (!certificates.every(isCheapToVerify)) throw new FlightError('costly_certificate')
}

/**
 * Reads a Certificate message of TLS 1.3 (RFC 8446 §4.4.2), which has a context first and extensions after
 * each certificate, or of TLS 1.2 (RFC 5246 §7.4.6).
 */
function certificatesOf(message: Buffer, isTls13: boolean): readonly Buffer[] {
  const certificates: Buffer[] = []
  const context = isTls13 ? 1 + (message[0] ?? 0) : 0
  const list = vector(message, context, 3)
  if (list.end !== message.length) throw new FlightError('malformed')
  let at = list.start
  while (at < list.end) {
    const certificate = vector(message, at, 3)
    certificates.push(message.subarray(certificate.start, certificate.end))
    at = isTls13 ? vector(message, certificate.end, 2).end : certificate.end
  }
  return certificates
}

/** Finds a vector whose length stands before it in so many bytes (RFC 8446 §3.4). */
function vector(bytes: Buffer, at: number, lengthBytes: number): { start: number; end: number } {
  const start = at + lengthBytes
  if (start > bytes.length) throw new FlightError('malformed')
  const end = start + bytes.readUIntBE(at, lengthBytes)
  if (end > bytes.length) throw new FlightError('malformed')
  return { start, end }
}
