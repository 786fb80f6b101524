import { generateKeyPairSync } from 'node:crypto'
import t from 'tap'
import { ClientFlight, FlightError } from '../../../proxy/tls/client-flight.ts'
import { certificate, costlyKey } from '../../support/tls/costly-chain.ts'

/** Bytes with their length in front, in so many bytes. */
function vector(bytes: Buffer, size: number): Buffer {
  const length = Buffer.alloc(4)
  length.writeUInt32BE(bytes.length)
  return Buffer.concat([length.subarray(4 - size), bytes])
}

const message = (type: number, body: Buffer) => Buffer.concat([Buffer.from([type]), vector(body, 3)])
const record = (content: Buffer, type = 22) => Buffer.concat([Buffer.from([type, 3, 3]), vector(content, 2)])

const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey
const cheap = certificate(key, 'a', key, 'a')
const dear = certificate(costlyKey(), 'a', key, 'a')
/** As TLS 1.2 sends them: in the clear. */
const certificates = (...list: readonly Buffer[]) =>
  message(11, vector(Buffer.concat(list.map((der) => vector(der, 3))), 3))
const hello = message(1, Buffer.alloc(200, 1))
const rest = Buffer.concat([record(message(16, Buffer.alloc(65))), record(Buffer.from([1]), 20)])

const read = (flight: ClientFlight, ...pieces: readonly Buffer[]): Buffer =>
  Buffer.concat(pieces.map((piece) => flight.add(piece)))

const fault = (...pieces: readonly Buffer[]): unknown => {
  try {
    read(new ClientFlight(() => null), ...pieces)
    return null
  } catch (error) {
    return error instanceof FlightError ? error.fault : error
  }
}

await t.test('A1: what an honest client sends passes byte for byte, however it is cut', async (t) => {
  const flights = {
    'one record for each message': [record(hello), record(certificates(cheap, cheap)), rest],
    'a hello in two records': [
      record(hello.subarray(0, 7)),
      record(hello.subarray(7)),
      record(certificates()),
      rest,
    ],
    'certificates in three': [
      record(hello),
      ...[0, 3, 250].map((at, i, cuts) => record(certificates(cheap).subarray(at, cuts[i + 1]))),
      rest,
    ],
  }
  for (const [name, records] of Object.entries(flights)) {
    const sent = Buffer.concat(records)
    for (const size of [1, 2, 5, 64, sent.length]) {
      const flight = new ClientFlight(() => null)
      const pieces = Array.from({ length: Math.ceil(sent.length / size) }, (_, i) =>
        sent.subarray(i * size, (i + 1) * size),
      )
      t.ok(read(flight, ...pieces).equals(sent), `${name}, ${size} bytes at a time`)
      t.ok(flight.done)
    }
  }
})

await t.test('A1: TLS reads nothing of a Certificate message before all of it was looked at', async (t) => {
  const flight = new ClientFlight(() => null)
  const sent = record(certificates(cheap))
  t.ok(flight.add(record(hello)).equals(record(hello)), 'a hello passes at once')
  t.equal(flight.add(sent.subarray(0, -1)).length, 0)
  t.notOk(flight.done)
  t.ok(flight.add(sent.subarray(-1)).equals(sent))
})

await t.test('A1: what no honest client sends ends the handshake', async (t) => {
  const many = Array.from({ length: 11 }, () => cheap)
  t.equal(fault(record(hello), record(certificates(cheap, dear))), 'costly_certificate')
  t.equal(fault(record(hello), record(certificates(...many))), 'too_many_certificates')
  t.equal(fault(record(hello), record(certificates(...many.slice(1)))), null, 'ten are taken')
  t.equal(
    fault(record(message(1, Buffer.alloc(16_384))).subarray(0, 5)),
    'flight_too_long',
    'by what it announces',
  )
  const hellos = Array.from({ length: 100 }, () => record(hello))
  t.equal(fault(...hellos), 'flight_too_long', 'in sum')
  t.equal(fault(record(hello), record(message(25, cheap))), 'malformed', 'compressed certificates')
  t.equal(fault(record(hello), rest), 'malformed', 'a key exchange before the certificates')
  t.equal(fault(record(hello), record(Buffer.alloc(40), 23)), 'malformed', 'early data')
  t.equal(fault(record(hello), record(message(11, Buffer.alloc(2)))), 'malformed', 'no list')
  t.equal(
    fault(record(hello), record(message(11, Buffer.from('00000400000901', 'hex')))),
    'malformed',
    'a false length',
  )
})

await t.test('A1: a client that is not asked for certificates sends none, and is let through', (t) => {
  const sent = Buffer.concat([record(hello), rest])
  const flight = new ClientFlight(() => null, false)
  t.ok(read(flight, sent.subarray(0, 9), sent.subarray(9)).equals(sent))
  t.ok(flight.done)
  const sends = (): Buffer =>
    read(new ClientFlight(() => null, false), record(hello), record(certificates(cheap)))
  t.throws(sends, new FlightError('malformed'))
  t.end()
})
