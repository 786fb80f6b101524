/**
 * The parts of `node:http`. An `import` of it reads each of its members, of which one is WebSocket: that loads the HTTP
 * client within Node, which nobody here uses, and which takes 2 MB of heap and 9 of memory.
 */
export const { Agent, createServer, IncomingMessage, ServerResponse, STATUS_CODES } =
  process.getBuiltinModule('node:http')
