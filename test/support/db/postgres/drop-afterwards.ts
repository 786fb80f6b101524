// Run as a process of its own: reads names of databases until the process that sends them is over, and drops them.
import { text } from 'node:stream/consumers'
import { Client } from 'pg'

const [url = ''] = process.argv.slice(2)
const names = (await text(process.stdin)).split('\n').filter((name) => name !== '')
const client = new Client(url)
await client.connect()
for (const name of names) await client.query(`drop database if exists ${name} with (force)`)
await client.end()
