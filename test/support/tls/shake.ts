import { connect } from 'node:tls'

/*
 * A process that shakes hands with a gateway as fast as it is let. Its arguments are the port, the addresses
 * to come from, the connections of each at a time, and the number of tries, which is endless where it is
 * absent. The chain to show, and other options of TLS, come in `OPTIONS`, as JSON.
 */

const [, , port = '', addresses = '', each = '', tries = 'Infinity'] = process.argv
const options = JSON.parse(process.env.OPTIONS ?? '{}')
let left = Number(tries)

async function shake(localAddress: string): Promise<void> {
  while (left > 0) {
    left -= 1
    const where = { host: '127.0.0.1', port: Number(port), localAddress }
    const socket = connect({ ...where, rejectUnauthorized: false, ...options })
    // In TLS 1.3 a client is done before the server has looked at its certificate.
    socket.on('error', () => {}).once('secureConnect', () => socket.end())
    socket.resume()
    await new Promise((resolve) => socket.once('close', resolve))
  }
}

const connections = (address: string) => Array.from({ length: Number(each) }, () => shake(address))
await Promise.all(addresses.split(',').flatMap(connections))
