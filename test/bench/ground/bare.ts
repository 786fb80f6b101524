// Servers that check nothing of ours, to compare the ladder with. Usage: node bare.ts tls|https|http-proxy-3
// DIR UPSTREAM
import { readFileSync } from 'node:fs'
import { Agent, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { Server } from 'node:net'
import { join } from 'node:path'
import { createServer as createTlsServer } from 'node:tls'
import { createProxyServer } from 'http-proxy-3'
import { COMPLETION, JSON_ANSWER, requestBody, requestText } from '../load/messages.ts'
import { sayReady } from './say-ready.ts'

const [, , kind = '', directory = '', upstream = ''] = process.argv
const read = (name: string): Buffer => readFileSync(join(directory, name))
const material = { cert: read('server.crt'), key: read('server.key'), minVersion: 'TLSv1.3' } as const
const mutual = { ...material, ca: read('clients-ca.crt'), requestCert: true, rejectUnauthorized: true }

sayReady(serverOf(kind))

function serverOf(name: string): Server {
  switch (name) {
    case 'tls':
      return rawTls()
    case 'https':
      return createHttpsServer(material, staticAnswer)
    case 'http-proxy-3':
      return proxy()
    default:
      throw new Error('usage: node bare.ts tls|https|http-proxy-3 DIR UPSTREAM')
  }
}

/** Serves no HTTP at all: so many bytes in, so many bytes out. No server in Node can do more. */
function rawTls(): Server {
  const length = Buffer.byteLength(requestText(requestBody('json')))
  return createTlsServer(mutual, (socket) => {
    let came = 0
    socket.on('error', () => socket.destroy())
    socket.on('data', (piece: Buffer) => {
      for (came += piece.length; came >= length; came -= length) socket.write(JSON_ANSWER)
    })
  })
}

function staticAnswer(req: IncomingMessage, res: ServerResponse): void {
  const chunks: Buffer[] = []
  req.on('data', (chunk: Buffer) => chunks.push(chunk))
  req.on('end', () => {
    res.writeHead(200, { 'content-type': 'application/json', 'content-length': String(COMPLETION.length) })
    res.end(COMPLETION)
  })
}

function proxy(): Server {
  const agent = new Agent({ keepAlive: true })
  const web = createProxyServer({ target: upstream, agent })
  web.on('error', (_error, _req, res) => void res.destroy())
  return createHttpsServer(mutual, (req, res) => web.web(req, res))
}
