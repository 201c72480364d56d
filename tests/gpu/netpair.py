# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces joined by a veth pair, without ip(8): for programs that are each to see a network of their own.

	pair = NetPair(("198.18.1.1", "198.18.1.2"))     # needs root; OSError where it can't be made
	subprocess.Popen(pair.command(0, "gleamd", ...))
	pair.bytes(0)                                     # the kernel's count of what went through end 0, both ways
	pair.close()

As a program: netpair.py up ADDRESS ADDRESS makes one, says its two processes, and keeps it until its input ends; netpair.py enter PID
COMMAND... runs COMMAND in the network namespace of a process.
"""
import ctypes
import os
import socket
import struct
import sys

NLM_F_REQUEST, NLM_F_ACK, NLM_F_EXCL, NLM_F_CREATE = 1, 4, 0x200, 0x400
RTM_NEWLINK, RTM_NEWADDR, RTM_SETLINK = 16, 20, 19
IFLA_IFNAME, IFLA_NET_NS_PID, IFLA_LINKINFO, IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 3, 19, 18, 1, 2, 1
IFA_ADDRESS, IFA_LOCAL = 1, 2
IFF_UP = 1
NAME = b"gl0\0"
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
	if result:
		raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def attribute(kind, data):
	size = 4 + len(data)
	return struct.pack("=HH", size, kind) + data + b"\0" * (-size % 4)


def request(kind, flags, body):
	"""One request to the kernel's routing sockets, in the namespace of the caller."""
	with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
		netlink.send(struct.pack("=IHHII", 16 + len(body), kind, NLM_F_REQUEST | NLM_F_ACK | flags, 1, 0) + body)
		answer = netlink.recv(65536)
	code = struct.unpack_from("=i", answer, 16)[0]
	if code:
		raise OSError(-code, os.strerror(-code))


def up(index):
	request(RTM_NEWLINK, 0, struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, IFF_UP, IFF_UP))


def furnish(address):
	index = socket.if_nametoindex("gl0")
	data = socket.inet_aton(address)
	request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, struct.pack("=BBBBi", socket.AF_INET, 24, 0, 0, index) + attribute(IFA_LOCAL, data) +
		attribute(IFA_ADDRESS, data))
	up(index)
	up(socket.if_nametoindex("lo"))


class NetPair:
	def __init__(self, addresses):
		self.pids, self.pipes, problems = [], [], []
		for _ in range(2):
			told, tell = os.pipe()      # the child says that its namespace is there, or why not
			heard, say = os.pipe()      # and waits for what it is to do; its end is that of the pair
			pid = os.fork()
			if not pid:
				os.close(told)
				os.close(say)
				self.keeper(tell, heard)
			os.close(tell)
			os.close(heard)
			self.pids.append(pid)
			self.pipes.append((told, say))
			problems.append(os.read(told, 200))
		try:
			if problems != [b"ok", b"ok"]:
				raise OSError(b" ".join(problems).decode())
			self.ask(0, f"link {self.pids[1]}")
			for end in (0, 1):
				self.ask(end, f"furnish {addresses[end]}")
		except OSError:
			self.close()
			raise

	@staticmethod
	def keeper(tell, heard):
		"""Lives for its namespace."""
		try:
			checked(libc.unshare(CLONE_NEWNET))
			os.write(tell, b"ok")
			while True:
				words = os.read(heard, 200).decode().split()
				if not words:
					break
				if words[0] == "link":
					peer = bytes(struct.pack("=BxHiII", 0, 0, 0, 0, 0)) + attribute(IFLA_IFNAME, NAME) + attribute(
						IFLA_NET_NS_PID, struct.pack("=I", int(words[1])))
					request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, struct.pack("=BxHiII", 0, 0, 0, 0, 0) + attribute(IFLA_IFNAME, NAME) +
						attribute(IFLA_LINKINFO, attribute(IFLA_INFO_KIND, b"veth") + attribute(IFLA_INFO_DATA, attribute(VETH_INFO_PEER, peer))))
				else:
					furnish(words[1])
				os.write(tell, b"ok")
		except OSError as error:
			os.write(tell, str(error).encode()[:200])
		finally:
			os._exit(0)

	def ask(self, end, text):
		told, say = self.pipes[end]
		os.write(say, text.encode())
		answer = os.read(told, 200)
		if answer != b"ok":
			raise OSError(f"{text}: {answer.decode()}")

	def command(self, end, *command):
		return [sys.executable, os.path.abspath(__file__), "enter", str(self.pids[end]), *command]

	def bytes(self, end):
		with open(f"/proc/{self.pids[end]}/net/dev") as file:
			for line in file:
				if line.strip().startswith("gl0:"):
					numbers = line.split(":")[1].split()
					return int(numbers[0]) + int(numbers[8])
		return 0

	def close(self):
		for told, say in self.pipes:
			os.close(told)
			os.close(say)
		for pid in self.pids:
			os.waitpid(pid, 0)
		self.pids, self.pipes = [], []


def main():
	if len(sys.argv) == 4 and sys.argv[1] == "up":
		try:
			pair = NetPair(sys.argv[2:])
		except OSError as error:
			print(f"netpair: {error}", file=sys.stderr)
			return 1
		print(*pair.pids, flush=True)
		sys.stdin.read()
		pair.close()
		return 0
	if len(sys.argv) < 4 or sys.argv[1] != "enter" or not sys.argv[2].isdigit():
		print("usage: netpair.py up ADDRESS ADDRESS | enter PID COMMAND...", file=sys.stderr)
		return 2
	with open(f"/proc/{sys.argv[2]}/ns/net") as namespace:
		checked(libc.setns(namespace.fileno(), CLONE_NEWNET))
	os.execvp(sys.argv[3], sys.argv[3:])


if __name__ == "__main__":
	sys.exit(main())
