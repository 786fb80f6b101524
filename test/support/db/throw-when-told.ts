// Run as a process of its own: submits three units in one batch, of which the first throws when it is told. Says on
// standard output who was told what, then what the process caught.
import { entry, open } from './scratch-ledger.ts'

const [file = ''] = process.argv.slice(2)
const ledger = await open(file)
const said: unknown[] = []

process.on('uncaughtException', async (error) => {
  said.push(error.message)
  const [after] = await ledger.commit({ entries: [entry()] })
  said.push(after?.seq)
  await ledger.close()
  process.stdout.write(JSON.stringify(said))
})

ledger.submit({ entries: [entry()] }, () => {
  throw new Error('a fault of whoever was told')
})
ledger.submit({ entries: [entry()] }, (error, sealed) => said.push(error, sealed[0]?.seq))
ledger.submit({ entries: [entry()] }, (error, sealed) => said.push(error, sealed[0]?.seq))
