import { once } from 'node:events'
import { createServer } from 'node:http'
import { request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { connect } from 'node:tls'

/*
 * A process that sends bytes in the smallest pieces there are, so that the memory and the loop of the process
 * that takes them can be measured by themselves. Its first argument says which end it is.
 */

const PIECES = 4096
/** The client certificate to show, if any: `cert` and `key`. */
const identity = JSON.parse(process.env.IDENTITY ?? '{}')
const [, , role = '', ...args] = process.argv

/** `text` in chunks of one byte each. */
const chunked = (text: string): string => Array.from(text, (byte) => `1\r\n${byte}\r\n`).join('')

/** Opens connections to `port` and sends a head and so many bytes of a body on each; says so, and stays. */
async function client([port = '', connections = '', bytes = '', head = '', manner = '']: string[]) {
  const sending = Array.from({ length: Number(connections) }, async () => {
    const socket = connect({ host: '127.0.0.1', port: Number(port), rejectUnauthorized: false, ...identity })
    socket.on('error', () => {})
    await new Promise((resolve) => socket.once('secureConnect', resolve))
    socket.resume()
    socket.setNoDelay(true)
    const write = (text: string) => new Promise((resolve) => socket.write(text, resolve))
    await write(JSON.parse(head))
    for (let left = Number(bytes); left > 0 && !socket.destroyed; left -= PIECES) {
      if (manner === 'chunks') await write(chunked(' '.repeat(Math.min(PIECES, left))))
      // Each write is a record.
      else for (let i = 0; i < Math.min(PIECES, left); i++) await write(' ')
    }
  })
  await Promise.all(sending)
  process.stdout.write('sent\n')
}

/** Serves: answers each request with a text, in chunks of one byte; says its port. */
function server([type = '', before = '', bytes = '', after = '']: string[]) {
  const served = createServer((req, res) => {
    req.resume()
    let body = ''
    req.on('data', (chunk: Buffer) => {
      body += String(chunk)
    })
    req.on('end', () => {
      const id = /"id":(\d+)/.exec(body)?.[1] ?? '0'
      const text = `${before.replace('$id', id)}${' '.repeat(Number(bytes))}${after}`
      // Written past `res`, so the connection serves no second request.
      const head = `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\nconnection: close\r\ntransfer-encoding: chunked`
      res.socket?.end(`${head}\r\n\r\n${chunked(text)}0\r\n\r\n`)
    })
  })
  served.listen(0, '127.0.0.1', () => {
    const { port } = served.address() as AddressInfo
    process.stdout.write(`${port}\n`)
  })
}

/** Calls a door so many times at once, with a body; says the status and the length of each answer. */
async function caller([port = '', calls = '', path = '', body = '']: string[]) {
  const where = { host: '127.0.0.1', port: Number(port), path, method: 'POST', rejectUnauthorized: false }
  const call = async () => {
    const sent = request({ ...where, ...identity, headers: { 'content-type': 'application/json' } })
    sent.end(body)
    const [answer] = await once(sent, 'response')
    let length = 0
    for await (const piece of answer) length += piece.length
    return [answer.statusCode, length]
  }
  const answers = await Promise.all(Array.from({ length: Number(calls) }, call))
  process.stdout.write(`${JSON.stringify(answers)}\n`)
}

if (role === 'client') await client(args)
if (role === 'caller') await caller(args)
if (role === 'server') server(args)
