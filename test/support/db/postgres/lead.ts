// Run as a process of its own: says on standard output when it begins and ceases to lead a task.
import { openDatabase } from '../../../../db/engine.ts'

const [url = '', task = ''] = process.argv.slice(2)
const database = await openDatabase(url)
let led = false

setInterval(() => {
  const leads = database.leads(task)
  if (leads !== led) process.stdout.write(leads ? 'leads\n' : 'follows\n')
  led = leads
}, 10)
