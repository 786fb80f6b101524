import { connect } from 'node:tls'

/*
 * A process that shakes hands with a gateway as fast as it is let. Its arguments are the port, the addresses
 * to come from, the connections of each at a time, and the number of tries, which is endless where it is
 * absent. The chain to show, and other options of TLS, come in `OPTIONS`, as JSON. With `ask` as its last
 * argument it asks each time for `/health`, and exits with the number of tries that were not answered.
 */

const [, , port = '', addresses = '', each = '', tries = 'Infinity', ask] = process.argv
const options = JSON.parse(process.env.OPTIONS ?? '{}')
const REQUEST = 'GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n'
const MAX_EXIT_CODE = 255
let left = Number(tries)
let unanswered = 0

async function shake(localAddress: string): Promise<void> {
  while (left > 0) {
    left -= 1
    const where = { host: '127.0.0.1', port: Number(port), localAddress }
    const socket = connect({ ...where, rejectUnauthorized: false, ...options })
    // In TLS 1.3 a client is done before the server has looked at its certificate.
    socket.on('error', () => {}).once('secureConnect', () => (ask ? socket.write(REQUEST) : socket.end()))
    let answer = ''
    socket.on('data', (bytes: Buffer) => {
      answer += bytes.toString('latin1', 0, 12)
    })
    await new Promise((resolve) => socket.once('close', resolve))
    if (!answer.startsWith('HTTP/1.1 200')) unanswered += 1
  }
}

const connections = (address: string) => Array.from({ length: Number(each) }, () => shake(address))
await Promise.all(addresses.split(',').flatMap(connections))
if (ask) process.exitCode = Math.min(unanswered, MAX_EXIT_CODE)
