// Run as a process of its own: submits three units in one batch, of which the first throws when it is told. Says on
// standard output who was told what, then what the process caught.
import { entry, open } from './scratch-ledger.ts'

const [file = ''] = process.argv.slice(2)
const ledger = await open(file)
const said: unknown[] = []

process.on('uncaughtException', ({ message }) => {
  said.push(message)
  ledger.submit({ entries: [entry()] }, (_error, sealed) => {
    said.push(sealed[0]?.seq)
    void ledger.close().then(() => process.stdout.write(JSON.stringify(said)))
  })
})

ledger.submit({ entries: [entry()] }, () => {
  throw new Error('a fault of whoever was told')
})
ledger.submit({ entries: [entry()] }, (error, sealed) => said.push(error, sealed[0]?.seq))
ledger.submit({ entries: [entry()] }, (error, sealed) => said.push(error, sealed[0]?.seq))
